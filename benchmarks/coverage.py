"""Every causal language model of transformers, cut at every legal place.

    python benchmarks/coverage.py [TYPE ...] [--jobs 2] [--output docs/coverage.md]

Each type runs in a worker process that is replaced when it crashes or takes too
long. Writes the table and prints the totals.
"""

import argparse
import multiprocessing
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

TIME_LIMIT_S = 60.0

_SPAWN = multiprocessing.get_context("spawn")


def main() -> None:
    """Check all types and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=TIME_LIMIT_S)
    parser.add_argument("--output", type=Path, default=Path("docs/coverage.md"))
    args = parser.parse_args()
    types = args.types or all_types()
    rows: dict[str, Any] = {}

    def note(row: Any) -> None:
        rows[row.model_type] = row
        print(f"{len(rows):3d} {row.model_type}: {row.status} {row.detail}", flush=True)

    shares = [types[i :: args.jobs] for i in range(args.jobs)]
    with ThreadPoolExecutor(args.jobs) as threads:
        for done in [threads.submit(check, x, args.time_limit, note) for x in shares]:
            done.result()
    ordered = [rows[name] for name in types]
    args.output.parent.mkdir(exist_ok=True)
    args.output.write_text(table(ordered), encoding="utf-8")
    print(total(ordered))


def all_types() -> list[str]:
    """The types that transformers has, in its order."""
    from transformers.models.auto import modeling_auto

    return list(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


def check(
    types: Sequence[str], time_limit_s: float, note: Callable[[Any], None]
) -> None:
    """Check some types one after the other in a worker."""
    worker, ours = _start()
    for name in types:
        ours.send(name)
        try:
            if not ours.poll(time_limit_s):
                msg = f"takes more than {time_limit_s:.0f} s"
                raise TimeoutError(msg)
            row = ours.recv()
        except (TimeoutError, EOFError) as error:
            row = _failed(name, str(error) or "the process crashed")
            worker.kill()
            worker, ours = _start()
        note(row)
    ours.send(None)
    worker.join()


def _start() -> tuple[Any, Connection]:
    ours, theirs = _SPAWN.Pipe()
    worker = _SPAWN.Process(target=_work, args=(theirs,), daemon=True)
    worker.start()
    theirs.close()
    ours.poll(120)  # imports do not count
    ours.recv()
    return worker, ours


def _work(connection: Connection) -> None:
    import torch

    from planner.chain.coverage import check_type
    from planner.chain.source import quiet_transformers

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    connection.send("ready")
    with quiet_transformers():
        while (name := connection.recv()) is not None:
            try:
                connection.send(check_type(name))
            except Exception as error:  # a model's own code may raise anything
                first = (str(error).splitlines() or [""])[0]
                connection.send(_failed(name, f"{type(error).__name__}: {first}"))


def _failed(name: str, why: str) -> Any:
    from planner.chain.coverage import Coverage

    return Coverage(model_type=name, status="inexact", detail=why)


def total(rows: Sequence[Any]) -> str:
    """One line of counts."""
    counts = Counter(row.status for row in rows)
    found = ", ".join(f"{number} {status}" for status, number in counts.most_common())
    everywhere = sum(r.status == "exact" and r.num_legal == r.num_cuts for r in rows)
    return f"{len(rows)} types: {found}; {everywhere} of them at every place"


def table(rows: Sequence[Any]) -> str:
    """The page."""
    import torch
    import transformers

    lines = [
        "# Coverage",
        "",
        f"{total(rows)}.",
        "",
        "Each type of causal language model in transformers "
        f"{transformers.__version__} (torch {torch.__version__}, CPU, float32), as a "
        "tiny model with the same pattern of layers, cut at every legal place and "
        "over 2, 3 and 4 stages. Exact: the loss equals the unsplit model's to "
        "1e-6 and every parameter's gradient to 1e-5 of its norm, in training mode, "
        "with left padding. The loss is the cross-entropy; where *adds* says yes, "
        "the model can add a balance loss, which is not compared here. *Travels*: "
        "most tensors that cross a cut besides the hidden state. Made by "
        "`python benchmarks/coverage.py`.",
        "",
        "| type | class | status | legal cuts | travels | adds | what or why |",
        "|---|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {r.model_type} | {r.architecture} | {r.status} | "
        f"{r.num_legal} of {r.num_cuts} | {r.num_extras or ''} | "
        f"{'yes' if r.adds_loss else ''} | {r.detail} |"
        for r in rows
    ]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
