"""Stages small enough to look into, run by the engine in one process of the tests."""

import torch
from torch import nn

from planner.chain.split_backward import GraphParts
from planner.plan import SchedulePlan
from planner.runtime.engine import Engine, EngineStage

ROWS, WIDTH = 2, 4
ORDER = "0F0 1F0 2F0 0F1 1F1 2I0 1I0 2F1 0B0 1W0 2W0 2B1 1B1 0I1 0W1"


class Part(nn.Module):
    """A product whose output is a view of it; the last part sums it up."""

    def __init__(self, index):
        super().__init__()
        torch.manual_seed(index)
        self.index = index
        self.graph_parts = GraphParts()
        self.weight = nn.Parameter(torch.randn(WIDTH, WIDTH))
        self.outside = nn.Parameter(torch.empty(1, device="meta"))  # of another stage

    def forward(self, *hidden, rows):
        made = (hidden[0] if hidden else rows) @ self.weight
        return made.square().sum() if self.index == 2 else made.view(ROWS, WIDTH)

    def owned_parameters(self):
        return {"weight": self.weight}


def run_parts(_, rank):
    """Two steps; gradients, those of plain training, and what is left over."""
    parts = [Part(index) for index in range(3)]
    engine = Engine(
        [
            EngineStage(
                index=part.index,
                module=part,
                received=[_like_hidden()] if part.index > 0 else [],
                sent=[_like_hidden()] if part.index < 2 else [],
            )
            for part in parts
        ],
        num_stages=3,
        schedule=SchedulePlan(
            name="planned",
            num_microbatches=2,
            microbatch_size=ROWS,
            actions=(tuple(ORDER.split()),),
        ),
        device=torch.device("cpu"),
    )
    rows = torch.arange(2.0 * ROWS * WIDTH).reshape(2 * ROWS, WIDTH) / 10
    losses = []
    for _ in range(2):
        for part in parts:
            part.weight.grad = None
        losses.append(engine.step({"rows": rows}, num_target_tokens=5))
    found = [part.weight.grad.tolist() for part in parts]
    copies = [part.weight.detach().clone().requires_grad_() for part in parts]
    loss = (rows @ copies[0] @ copies[1] @ copies[2]).square().sum() / 5
    loss.backward()
    return {
        "losses": losses,
        "gradients": found,
        "plain loss": loss.item(),
        "plain gradients": [copy.grad.tolist() for copy in copies],
        "left": list(_left(engine)),
        "actions": [span.action for span in engine.stopwatch.spans()],
    }


def _like_hidden():
    return torch.empty(ROWS, WIDTH, device="meta", requires_grad=True)


def _left(engine):
    """Tensors that the stages still hold after a step."""
    for stage in engine._schedule._stages:
        for infos in [*stage.args_recv_info.values(), *stage.grad_recv_info.values()]:
            yield from (info.input_name for info in infos if info.buffer is not None)
        for name in ("fwd_cache", "backward_state"):
            yield from getattr(stage, name)
