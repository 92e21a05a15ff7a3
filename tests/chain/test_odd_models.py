"""Models whose blocks hand on more than a hidden state, and those that are refused.

Each is a chain of three small blocks with one change. Where it can be cut, loss and
gradients are those of the whole model at every legal cut.
"""

from types import SimpleNamespace

import pytest
import torch
from model_folders import llama_config

from planner.chain import parity, skeleton, watched
from planner.chain.layers import find_chain
from planner.chain.source import ModelSource
from planner.errors import ModelError

NUM_BLOCKS = 3
WIDTH = 32


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(WIDTH, WIDTH)

    def forward(self, hidden, extra=None):
        added = torch.tanh(self.inner(hidden))
        return hidden + (added if extra is None else added * extra)


class Plain(torch.nn.Module):
    """Adds up the outputs of its blocks; the others are changes of it."""

    block = Block

    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = torch.nn.Embedding(config.vocab_size, WIDTH)
        kind = type(self).block
        self.blocks = torch.nn.ModuleList(kind() for _ in range(NUM_BLOCKS))
        self.head = torch.nn.Linear(WIDTH, config.vocab_size)

    def _init_weights(self, module):
        for parameter in module.parameters(recurse=False):
            torch.nn.init.normal_(parameter, std=0.3)

    def forward(self, input_ids, labels=None, attention_mask=None, use_cache=None):
        hidden = self.run(self.embed(input_ids))
        output = SimpleNamespace(logits=self.head(hidden), loss=None)
        if labels is not None:
            output.loss = torch.nn.functional.cross_entropy(
                output.logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
            )
            output.loss = output.loss + self.added_loss()
        return output

    def run(self, hidden):
        for block in self.blocks:
            hidden = block(hidden)
        return hidden

    def added_loss(self):
        return 0.0


class Unused(Plain):
    """Holds a layer that never runs."""

    def __init__(self, config):
        super().__init__(config)
        self.spare = torch.nn.Linear(2, 2)


class Between(Plain):
    """Scales the hidden state between its blocks, by a number it learns."""

    def __init__(self, config):
        super().__init__(config)
        self.scales = torch.nn.ParameterList(torch.ones(1) for _ in self.blocks)

    def run(self, hidden):
        for block, scale in zip(self.blocks, self.scales, strict=True):
            hidden = block(hidden) * scale
        return hidden


class LearnedExtra(Plain):
    """Every block is handed a second tensor, made from the embedding."""

    def run(self, hidden):
        extra = hidden.mean(1, keepdim=True)
        for block in self.blocks:
            hidden = block(hidden, extra=extra)
        return hidden


class NestedExtraBlock(Block):
    def forward(self, hidden, extra):
        return super().forward(hidden, extra["of"][0])


class NestedExtra(Plain):
    """The same, inside a dictionary."""

    block = NestedExtraBlock

    def run(self, hidden):
        extra = {"of": (hidden.mean(1, keepdim=True),)}
        for block in self.blocks:
            hidden = block(hidden, extra=extra)
        return hidden


class OwnResidual(Plain):
    """Adds a block's input to its output itself."""

    def run(self, hidden):
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return hidden


class Skips(Plain):
    """The head sees what a module of the first block left."""

    def __init__(self, config):
        super().__init__(config)
        self.kept = []
        self.blocks[0].inner.register_forward_hook(self.keep)

    def keep(self, module, args, output):
        self.kept.append(output)

    def run(self, hidden):
        self.kept.clear()
        return super().run(hidden) + self.kept[0]


class AddsLosses(Plain):
    """Pools what hooks collect from its blocks into a loss, as routers' logits."""

    def __init__(self, config):
        super().__init__(config)
        self.kept = []
        for block in self.blocks:
            block.inner.register_forward_hook(self.keep)

    def keep(self, module, args, output):
        self.kept.append(output)

    def run(self, hidden):
        self.kept.clear()
        return super().run(hidden)

    def added_loss(self):
        pooled = torch.stack([x.mean((0, 1)) for x in self.kept])
        return pooled.mean(0).square().sum()


class ReturnsLossesBlock(Block):
    def forward(self, hidden):
        return super().forward(hidden), None, self.inner.weight.square().mean()


class ReturnsLosses(Plain):
    """Sums a loss that every block returns besides the hidden state."""

    block = ReturnsLossesBlock

    def run(self, hidden):
        self.total = 0.0
        for block in self.blocks:
            hidden, _, loss = block(hidden)
            if loss is not None:
                self.total = self.total + loss
        return hidden

    def added_loss(self):
        return self.total


class RemembersBlock(Block):
    def forward(self, hidden, memory):
        left = super().forward(hidden)
        memory.kept.append(left)
        return left + memory.kept[0] if len(memory.kept) == NUM_BLOCKS else left


class Remembers(Plain):
    """The last block reads what the first one left in a place of their own."""

    block = RemembersBlock

    def run(self, hidden):
        memory = SimpleNamespace(kept=[])
        for block in self.blocks:
            hidden = block(hidden, memory)
        return hidden


class HandsOnByHook(AddsLosses):
    """Keeps what hooks see of its inner layers in a changed form."""

    def keep(self, module, args, output):
        self.kept.append(output.square())


class TwoRounds(Plain):
    """Calls the second block again after the third."""

    def run(self, hidden):
        return self.blocks[1](super().run(hidden))


def source_of(monkeypatch, model):
    """A model that transformers is made to build."""

    def build(source, *, dtype, **_):
        torch.manual_seed(0)
        return model(source.config).to(dtype).train()

    for place in (watched, skeleton, parity):
        monkeypatch.setattr(place, "build_model", build)
    return ModelSource(id="mine", config=llama_config())


def chain_of(monkeypatch, model):
    source = source_of(monkeypatch, model)
    return find_chain(source, attention="sdpa"), source


@pytest.mark.parametrize(
    ("model", "cuts", "num_crossing"),
    [
        (Plain, (0, 1, 2, 3), 1),
        (Unused, (0, 1, 2, 3), 1),
        (Between, (0, 1, 2, 3), 1),
        (LearnedExtra, (0, 1, 2, 3), 2),
        (NestedExtra, (0, 1, 2, 3), 2),
        (OwnResidual, (0, 1, 2), 1),
        (Skips, (0, 1, 2, 3), 2),
        (AddsLosses, (0, 1, 2, 3), 4),
        (ReturnsLosses, (0, 1, 2, 3), 4),
        (Remembers, (0, 3), 1),
        (HandsOnByHook, (0,), 1),
        (TwoRounds, (0, 1, 3), 1),
    ],
)
def test_every_legal_cut_trains_as_the_whole_model(
    monkeypatch, model, cuts, num_crossing
):
    chain, source = chain_of(monkeypatch, model)
    assert chain.cuts == cuts
    crossing = [len(chain.crossing(x, dtype=torch.float32)) for x in cuts]
    assert max(crossing) == num_crossing
    inputs = parity.make_inputs(256)
    reference = parity.run_unsplit(source, chain, inputs, attention="sdpa")
    for ends in [*([cut] for cut in cuts), list(cuts)]:
        found = parity.compare(source, chain, reference, ends, attention="sdpa")
        assert found.is_exact, found


def test_a_parameter_that_nothing_uses_stays_with_the_embedding(monkeypatch):
    chain, _ = chain_of(monkeypatch, Unused)
    assert "spare.weight" in chain.layers[0].parameters


class KeepsLosses(AddsLosses):
    """Its inner layers write down themselves what the loss is made of."""

    def __init__(self, config):
        Plain.__init__(self, config)
        self.kept = []
        for block in self.blocks:
            block.inner = Keeping(self.kept)


class Keeping(torch.nn.Linear):
    def __init__(self, kept):
        super().__init__(WIDTH, WIDTH)
        self.kept = kept

    def forward(self, hidden):
        output = super().forward(hidden)
        self.kept.append(output)
        return output


def test_a_collected_value_that_the_loss_does_not_meet_is_refused(monkeypatch):
    chain, source = chain_of(monkeypatch, KeepsLosses)
    inputs = parity.make_inputs(256)
    reference = parity.run_unsplit(source, chain, inputs, attention="sdpa")
    with pytest.raises(ModelError, match=r"what blocks\.0\.inner returned, but not"):
        parity.compare(source, chain, reference, [1], attention="sdpa")


# --- what is refused ----------------------------------------------------------


class NoBlocks(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.only = torch.nn.Linear(2, 2)


class Nested(Plain):
    """A block calls another one."""

    def run(self, hidden):
        first, last = self.blocks[:2]
        last.inner.register_forward_pre_hook(lambda _, args: first(args[0]))
        return super().run(hidden)


class ByNameBlock(Block):
    def forward(self, hidden):
        return {"left": super().forward(hidden)}


class ByName(Plain):
    """Its blocks return the hidden state under a name."""

    block = ByNameBlock

    def run(self, hidden):
        for block in self.blocks:
            hidden = block(hidden)["left"]
        return hidden


class InTuple(Plain):
    """One block returns a tensor, the others a tuple."""

    def __init__(self, config):
        super().__init__(config)
        self.blocks[0] = ReturnsLossesBlock()

    def run(self, hidden):
        for block in self.blocks:
            hidden = block(hidden)
            hidden = hidden[0] if isinstance(hidden, tuple) else hidden
        return hidden


class NeedsPixels(Plain):
    def forward(self, pixel_values, **kwargs):
        raise AssertionError


@pytest.mark.parametrize(
    ("model", "reason"),
    [
        (NoBlocks, "mine has no list of blocks"),
        (Nested, "the blocks of mine call one another"),
        (ByName, "blocks.0 of mine returns no hidden state"),
        (InTuple, "the blocks of mine return their hidden state in several ways"),
        (NeedsPixels, "mine does not run from token ids alone.*pixel_values"),
    ],
)
def test_what_is_no_chain_is_refused_by_name(monkeypatch, model, reason):
    with pytest.raises(ModelError, match=reason):
        chain_of(monkeypatch, model)
