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


def run_stages(stages, batch):
    """Loss and gradients by canonical name; copies of a tied one are summed."""
    hidden, edges = (), []
    for stage in stages:
        output = stage(*hidden, **batch)
        edges.append((hidden, output))
        hidden = (output.detach().requires_grad_(),)
    grad = None
    for stage_input, output in reversed(edges):
        output.backward(grad)
        grad = stage_input[0].grad if stage_input else None
    grads = {}
    for stage in stages:
        for name, parameter in stage.owned_parameters().items():
            grads[name] = grads.get(name, 0) + parameter.grad
    return output_of(edges), grads


def output_of(edges):
    """What the last stage returned."""
    return edges[-1][1].item()
