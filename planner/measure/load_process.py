"""One of the processes that compute while a layer is timed, see `load`.

It is sent what to do and answers with an empty text when it is at it, or with what
went wrong, which ends it. Sent nothing, it rests; it also ends when nobody can send
any more.
"""

import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from multiprocessing.connection import Connection
from typing import Literal, NamedTuple

import torch

from planner.chain.layers import Chain, find_chain
from planner.chain.source import ModelSource, open_source, quiet_transformers
from planner.measure.cold import stopwatch_for
from planner.measure.host_memory import keep_freed_memory
from planner.measure.layer_building import LayerBuilder, chained_copies
from planner.measure.sampling import Round
from planner.measure.timed import play_layer, step_rounds


class LayerWork(NamedTuple):
    """What a process does again and again.

    Attributes:
        size: Sequences of a microbatch.
        layer: Its index in the model.
        num_copies: Of the layer, run one after the other.
        optimizer: Whose step is taken on the layer's parameters; empty for running
            the layer itself.
    """

    size: int
    layer: int
    num_copies: int = 1
    optimizer: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """Whose layers a process runs; plain data, so that it can be sent.

    Attributes:
        id: Hub id, folder or `package.module:factory`.
        revision: Commit or branch of the hub, if any.
        trust_remote_code: Whether the model's own code may run.
        dtype: Of weights and activations.
        attention: Attention implementation of transformers, or `auto`.
        seq_len: Tokens of a sequence.
    """

    id: str
    revision: str | None
    trust_remote_code: bool
    dtype: Literal["float32", "bfloat16"]
    attention: str
    seq_len: int


def serve(model: LoadedModel, connection: Connection) -> None:
    """Do what is sent until nothing can be sent any more.

    Args:
        model: Whose layers are run.
        connection: To the process that measures.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # whoever started this ends it
    try:
        torch.set_num_threads(1)
        keep_freed_memory()
        with quiet_transformers():
            _Worker(model).work(connection)
    except (EOFError, BrokenPipeError):
        return
    except Exception as error:
        text = " ".join(str(error).split())
        connection.send(f"failed with {type(error).__name__}: {text}")


@dataclass(slots=True)
class _Worker:
    model: LoadedModel
    chains: dict[int, Chain] = field(default_factory=dict)
    source: ModelSource | None = None

    def work(self, connection: Connection) -> None:
        while True:
            task = connection.recv()
            if task is None:
                continue
            play = self._rounds(task)
            play()
            connection.send("")
            while not connection.poll():
                play()
            del play

    def _rounds(self, task: LayerWork) -> Callable[[], Round]:
        model, device = self.model, torch.device("cpu")
        if self.source is None:
            self.source = open_source(
                model.id,
                revision=model.revision,
                trust_remote_code=model.trust_remote_code,
            )
        shape = (task.size, model.seq_len)
        if task.size not in self.chains:
            self.chains[task.size] = find_chain(
                self.source, attention=model.attention, shape=shape
            )
        builder = LayerBuilder(
            source=self.source,
            chain=self.chains[task.size],
            dtype=model.dtype,
            shape=shape,
            device=device,
        )
        copies = [builder.build(task.layer) for _ in range(task.num_copies)]
        if task.optimizer:
            learned = [p for copy in copies for p in copy.learned()]
            return step_rounds(task.optimizer, learned, device)
        run, again = chained_copies(copies)
        return partial(play_layer, run, again, stopwatch_for(run, device))
