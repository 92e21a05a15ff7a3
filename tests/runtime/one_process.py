"""What every run is held against: the unsplit model in one process."""

import torch
from transformers import AutoModelForCausalLM, get_scheduler

from planner.runtime.data import batches


def train_unsplit(
    folder,
    sequences,
    options,
    *,
    num_steps,
    batch_size,
    optimizer="adamw",
    loss_of=None,
    trust_remote_code=False,
):
    """Plain training; returns losses, norms and the final state dict."""
    loss_of = loss_of or mean_loss
    model = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, trust_remote_code=trust_remote_code
    ).train()
    kind = torch.optim.AdamW if optimizer == "adamw" else torch.optim.SGD
    stepper = kind(model.parameters(), lr=options.lr, weight_decay=0.0)
    scheduler = get_scheduler(options.lr_schedule, stepper, options.warmup_steps, 10)
    losses, norms = [], []
    for batch in batches(
        sequences,
        global_batch_size=batch_size,
        num_steps=num_steps,
        shuffle=options.shuffle,
        seed=options.seed,
    ):
        loss = loss_of(model, batch)
        loss.backward()
        limit = options.max_grad_norm or float("inf")
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), limit)
        stepper.step()
        scheduler.step()
        stepper.zero_grad()
        losses.append(loss.item())
        norms.append(norm.item())
    return losses, norms, {k: v.detach() for k, v in model.state_dict().items()}


def mean_loss(model, batch):
    """The mean over all target tokens of the step, the whole batch at once."""
    output = model(
        input_ids=batch.input_ids,
        attention_mask=batch.attention_mask,
        use_cache=False,
    )
    logits = output.logits[:, :-1].reshape(-1, output.logits.shape[-1])
    targets = batch.labels[:, 1:].reshape(-1)
    total = torch.nn.functional.cross_entropy(
        logits, targets, ignore_index=-100, reduction="sum"
    )
    return total / (targets != -100).sum()


def own_losses(model, batch):
    """The model's own loss, row by row, each as heavy as its target tokens."""
    total = batch.num_target_tokens
    losses = []
    for row in range(len(batch.input_ids)):
        labels = batch.labels[row : row + 1]
        output = model(
            input_ids=batch.input_ids[row : row + 1],
            attention_mask=batch.attention_mask[row : row + 1],
            labels=labels,
            use_cache=False,
        )
        losses.append(output.loss * (labels[:, 1:] != -100).sum() / total)
    return sum(losses)
