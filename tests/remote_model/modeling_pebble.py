"""Pebble: a mixture of experts as code on the hub often looks.

What makes it awkward to cut: a block returns a tuple, each block has a balance
loss of its own that the model adds up, the attention makes its rotary embedding
itself, the mask has four dimensions, the gate adds noise while it is trained, the
experts are lists of parameters, how many rows each of them gets is read from a
tensor, and recompute is asked for in the old way.
"""

from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812
from transformers import PreTrainedModel
from transformers.utils import ModelOutput

from .configuration_pebble import PebbleConfig


@dataclass
class PebbleOutput(ModelOutput):
    """What the model returns."""

    loss: torch.Tensor | None = None
    logits: torch.Tensor | None = None
    balance_loss: torch.Tensor | None = None
    num_dropped_tokens: tuple | None = None
    gate_load: tuple | None = None
    gate_importance: tuple | None = None


class PebbleNorm(nn.Module):
    """Divides by the root mean square."""

    def __init__(self, size):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        scale = x.float().square().mean(-1, keepdim=True).add(1e-6).rsqrt()
        return self.weight * (x.float() * scale).to(x.dtype)


class PebbleAttention(nn.Module):
    """Attention that turns queries and keys by angles that it works out itself."""

    def __init__(self, config):
        super().__init__()
        size = config.hidden_size
        self.num_heads = config.num_attention_heads
        self.head_size = size // self.num_heads
        self.qkv = nn.Linear(size, 3 * size, bias=False)
        self.out = nn.Linear(size, size, bias=False)
        self.register_buffer("rates", self.make_rates(), persistent=False)

    def make_rates(self):
        steps = torch.arange(0, self.head_size, 2).float() / self.head_size
        return 10000.0**-steps

    def _turn(self, x, positions):
        angles = positions[:, None, :, None].float() * self.rates.to(x.device)
        cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
        left, right = x.chunk(2, dim=-1)
        return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)

    def forward(self, x, mask, positions):
        batch, length, size = x.shape
        shape = (batch, length, 3, self.num_heads, self.head_size)
        q, k, v = self.qkv(x).view(shape).permute(2, 0, 3, 1, 4)
        q, k = self._turn(q, positions), self._turn(k, positions)
        scores = q @ k.transpose(-1, -2) / self.head_size**0.5 + mask
        mixed = scores.float().softmax(-1).to(x.dtype) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, size))


class PebbleGate(nn.Module):
    """Chooses experts for each token, with noise while it is trained."""

    def __init__(self, config):
        super().__init__()
        self.num_experts = config.num_experts
        self.num_selected = config.num_selected
        self.noise = config.gate_noise
        self.balance_loss_weight = config.balance_loss_weight
        self.choice = nn.Linear(config.hidden_size, config.num_experts, bias=False)
        self.spread = nn.Linear(config.hidden_size, config.num_experts, bias=False)

    def forward(self, x):
        logits = self.choice(x).float()
        if self.training and self.noise:
            deviation = F.softplus(self.spread(x).float()) + 1e-2
            logits = logits + self.noise * torch.randn_like(logits) * deviation
        best, chosen = logits.topk(self.num_selected, dim=-1)
        scores = best.softmax(-1)
        importance = torch.zeros_like(logits).scatter(1, chosen, scores).sum(0)
        load = chosen.flatten().bincount(minlength=self.num_experts)
        balance = self.balance_loss_weight * (
            _squared_variation(importance) + _squared_variation(load.float())
        )
        return chosen, scores.to(x.dtype), balance, load, importance


def _squared_variation(x):
    return x.var(unbiased=False) / (x.mean().square() + 1e-10)


class PebbleExperts(nn.Module):
    """Gated networks whose matrices lie in lists."""

    def __init__(self, config):
        super().__init__()
        inner, outer = config.expert_size, config.hidden_size

        def matrices(rows, columns):
            made = (torch.empty(rows, columns) for _ in range(config.num_experts))
            return nn.ParameterList(nn.Parameter(x.normal_()) for x in made)

        self.weight_gate = matrices(inner, outer)
        self.weight_up = matrices(inner, outer)
        self.weight_down = matrices(outer, inner)

    def forward(self, x, index):
        gate = F.silu(F.linear(x, self.weight_gate[index]))
        return F.linear(
            gate * F.linear(x, self.weight_up[index]), self.weight_down[index]
        )


class PebbleSparse(nn.Module):
    """Rows are sorted by expert, and each expert gets its share."""

    def __init__(self, config):
        super().__init__()
        self.gate = PebbleGate(config)
        self.experts = PebbleExperts(config)

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        chosen, scores, balance, load, importance = self.gate(rows)
        order = chosen.flatten().argsort(stable=True)
        origin = order // chosen.shape[1]
        shares = rows[origin].split(load.tolist())
        outputs = [self.experts(y, i) for i, y in enumerate(shares) if len(y)]
        weighted = torch.cat(outputs) * scores.flatten()[order, None]
        mixed = torch.zeros_like(rows).index_add(0, origin, weighted)
        dropped = torch.zeros((), dtype=torch.long, device=x.device)
        return mixed.view_as(x), balance, dropped, load, importance


class PebbleBlock(nn.Module):
    """Attention and experts, each behind a norm; returns a tuple."""

    def __init__(self, config):
        super().__init__()
        self.attention_norm = PebbleNorm(config.hidden_size)
        self.attention = PebbleAttention(config)
        self.sparse_norm = PebbleNorm(config.hidden_size)
        self.sparse = PebbleSparse(config)

    def forward(self, x, mask, positions):
        x = x + self.attention(self.attention_norm(x), mask, positions)
        mixed, balance, dropped, load, importance = self.sparse(self.sparse_norm(x))
        return x + mixed, balance, dropped, load, importance


class PebblePreTrainedModel(PreTrainedModel):
    """How weights are drawn."""

    config_class = PebbleConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True

    def _init_weights(self, module):
        deviation = self.config.initializer_range
        if isinstance(module, nn.Linear | nn.Embedding):
            module.weight.data.normal_(0.0, deviation)
        elif isinstance(module, PebbleNorm):
            module.weight.data.fill_(1.0)
        elif isinstance(module, PebbleAttention):
            module.rates.copy_(module.make_rates())  # transformers 5 leaves it empty
        elif isinstance(module, PebbleExperts):
            for matrix in module.parameters():
                matrix.data.normal_(0.0, deviation)


class PebbleModel(PebblePreTrainedModel):
    """Embedding, blocks, norm; the balance losses of the blocks are summed."""

    def __init__(self, config):
        super().__init__(config)
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            PebbleBlock(config) for _ in range(config.num_hidden_layers)
        )
        self.norm = PebbleNorm(config.hidden_size)
        self.gradient_checkpointing = config.gradient_checkpointing
        self.post_init()

    def _mask(self, x, attention_mask):
        """Shape (batch, 1, length, length): 0 where a token may look."""
        length, lowest = x.shape[1], torch.finfo(x.dtype).min
        square = torch.full((length, length), lowest, dtype=x.dtype, device=x.device)
        mask = square.triu(1)[None, None].expand(x.shape[0], 1, -1, -1)
        if attention_mask is None:
            return mask
        return mask.masked_fill(attention_mask[:, None, None, :] == 0, lowest)

    def forward(self, input_ids, attention_mask=None, position_ids=None):
        x = self.embedding(input_ids)
        if position_ids is None:
            position_ids = torch.arange(x.shape[1], device=x.device)[None]
        mask = self._mask(x, attention_mask)
        balance_loss, dropped, loads, importances = 0.0, (), (), ()
        for layer in self.layers:
            if self.gradient_checkpointing and self.training:
                outputs = torch.utils.checkpoint.checkpoint(
                    layer, x, mask, position_ids
                )
            else:
                outputs = layer(x, mask, position_ids)
            x = outputs[0]
            balance_loss = balance_loss + outputs[1]
            dropped += (outputs[2],)
            loads += (outputs[3],)
            importances += (outputs[4],)
        return self.norm(x), balance_loss, dropped, loads, importances


class PebbleForCausalLM(PebblePreTrainedModel):
    """The model with a head; its loss contains the balance loss."""

    def __init__(self, config):
        super().__init__(config)
        self.model = PebbleModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids=None,
        attention_mask=None,
        position_ids=None,
        labels=None,
        use_cache=None,
        **others,
    ):
        x, balance_loss, dropped, loads, importances = self.model(
            input_ids, attention_mask, position_ids
        )
        logits = self.lm_head(x).float()
        loss = None
        if labels is not None:
            loss = F.cross_entropy(
                logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
            )
            loss = loss + balance_loss
        return PebbleOutput(
            loss=loss,
            logits=logits,
            balance_loss=balance_loss,
            num_dropped_tokens=dropped,
            gate_load=loads,
            gate_importance=importances,
        )
