"""Models cut into stages, and the same models whole."""

import torch
from transformers import AutoModelForCausalLM

from planner.chain.stages import StageRecipe, build_stage

CPU = torch.device("cpu")


def whole_model(folder, attention="eager"):
    """What every stage is held against."""
    return AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation=attention
    ).train()


def make_stage(source, chain, first, last, *, recompute=(), seed=None):
    """Layers `first` to `last`, from the checkpoint or drawn from a seed."""
    recipe = StageRecipe(
        first=first,
        last=last,
        dtype="float32",
        attention=chain.attention,
        recompute=recompute,
    )
    return build_stage(source, chain, recipe, device=CPU, seed=seed)


def padded_batch(vocab_size=256):
    """Three rows: padded on the left, with an ignored prompt, and plain."""
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(3, vocab_size, (3, 10), generator=generator)
    mask = torch.ones_like(ids)
    mask[0, :4] = 0
    labels = ids.masked_fill(mask == 0, -100)
    labels[1, :5] = -100
    return {"input_ids": ids, "attention_mask": mask, "labels": labels}


def run_whole(folder, batch, attention):
    """Summed loss and gradients of the unsplit model, by its own loss."""
    model = whole_model(folder, attention)
    num_targets = (batch["labels"][:, 1:] != -100).sum()
    loss = model(**batch, use_cache=False).loss * num_targets
    loss.backward()
    return loss.item(), {name: p.grad for name, p in model.named_parameters()}


def run_stages(stages, batch):
    """Summed loss and gradients by canonical name, as in one pipeline step."""
    received, sent = None, []
    for stage in stages:
        output = stage(*([] if received is None else [received]), **batch)
        sent.append((received, output))
        received = output.detach().requires_grad_()
    loss, grad = output.item(), None
    for received, output in reversed(sent):
        output.backward(grad)
        grad = None if received is None else received.grad
    grads = {}
    for stage in stages:
        for name, parameter in stage.owned_parameters().items():
            # Each holder of a tied parameter has its share.
            grads[name] = grads.get(name, 0) + parameter.grad
    return loss, grads
