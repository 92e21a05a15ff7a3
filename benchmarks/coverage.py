"""Every causal language model of transformers, cut at every legal place.

    python benchmarks/coverage.py [TYPE ...] [--jobs 2] [--resume FILE]

Each type runs in a worker process that is replaced when it crashes or takes too
long. Results are appended to FILE as they come, and types that are there already
are not run again. With all types it writes docs/coverage.md, and the list of exact
types that `planner run` looks them up in; with some it prints the page.
"""

import argparse
import json
import multiprocessing
import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from multiprocessing.connection import Connection
from pathlib import Path

import torch
import transformers
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from planner import artifact
from planner.chain.coverage import Coverage, check_type
from planner.chain.known import EXACT_TYPES, ExactTypes
from planner.chain.source import quiet_transformers

TIME_LIMIT_S = 60.0
PAGE = Path("docs/coverage.md")

_SPAWN = multiprocessing.get_context("spawn")


def main() -> None:
    """Check all types and write the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--time-limit", type=float, default=TIME_LIMIT_S)
    parser.add_argument("--resume", type=Path)
    args = parser.parse_args()
    types = args.types or list(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    rows = {} if args.resume is None else read(args.resume)

    def note(row: Coverage) -> None:
        rows[row.model_type] = row
        if args.resume is not None:
            with args.resume.open("a", encoding="utf-8") as file:
                file.write(json.dumps(asdict(row)) + "\n")
        print(f"{len(rows):3d} {row.model_type}: {row.status} {row.detail}", flush=True)

    missing = [name for name in types if name not in rows]
    shares = [missing[i :: args.jobs] for i in range(args.jobs)]
    with ThreadPoolExecutor(args.jobs) as threads:
        for done in [threads.submit(check, x, args.time_limit, note) for x in shares]:
            done.result()
    ordered = [rows[name] for name in types]
    if args.types:
        print(page(ordered))
    else:
        PAGE.parent.mkdir(exist_ok=True)
        PAGE.write_text(page(ordered), encoding="utf-8")
        artifact.save(exact_types(ordered), EXACT_TYPES)
    print(total(ordered))


def read(path: Path) -> dict[str, Coverage]:
    """The results of an earlier run, by type."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    found = [artifact.from_json(x, Coverage, source=str(path)) for x in lines]
    return {row.model_type: row for row in found}


def check(
    types: Sequence[str], time_limit_s: float, note: Callable[[Coverage], None]
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
            row = failed(name, str(error) or "the process crashed")
            worker.kill()
            worker, ours = _start()
        note(row)
    ours.send(None)
    worker.join()


def _start() -> tuple[multiprocessing.process.BaseProcess, Connection]:
    ours, theirs = _SPAWN.Pipe()
    worker = _SPAWN.Process(target=_work, args=(theirs,), daemon=True)
    worker.start()
    theirs.close()
    ours.poll(120)  # imports do not count
    ours.recv()
    return worker, ours


def _work(connection: Connection) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    connection.send("ready")
    with quiet_transformers():
        while (name := connection.recv()) is not None:
            try:
                connection.send(check_type(name))
            except Exception as error:  # a model's own code may raise anything
                first = (str(error).splitlines() or [""])[0]
                connection.send(failed(name, f"{type(error).__name__}: {first}"))


def failed(name: str, why: str) -> Coverage:
    """The row of a type that could not be checked to the end."""
    return Coverage(model_type=name, status="failed", detail=why)


def exact_types(rows: Sequence[Coverage]) -> ExactTypes:
    """What is known from now on."""
    return ExactTypes(
        transformers=transformers.__version__,
        torch=torch.__version__.split("+")[0],
        types=tuple(sorted(row.model_type for row in rows if row.status == "exact")),
    )


def total(rows: Sequence[Coverage]) -> str:
    """One line of counts."""
    counts = Counter(row.status for row in rows)
    found = ", ".join(f"{number} {status}" for status, number in counts.most_common())
    everywhere = sum(r.status == "exact" and r.num_legal == r.num_cuts for r in rows)
    return f"{len(rows)} types: {found}; {everywhere} of them at every place"


def page(rows: Sequence[Coverage]) -> str:
    """The page."""
    lines = [
        "# Coverage",
        "",
        f"{total(rows)}.",
        "",
        "Each type of causal language model in transformers "
        f"{transformers.__version__} (torch {torch.__version__}, CPU, float32) as a "
        "tiny model with the same pattern of layers, cut at every legal place into "
        "two stages, and once over three and four. *Exact*: the loss equals the "
        "unsplit model's to 1e-6 and every parameter's gradient to 1e-5 of its norm, "
        "in training mode, with left padding. *Legal cuts*: of all places between "
        "two layers of the tiny model. *Travels*: what crosses a cut besides the "
        "hidden state, at most at once: arguments of a block by position or name, "
        "and outputs of modules that the model collects, for a balance loss above "
        "all. *Adds*: the model adds something to the cross-entropy (its balance "
        "loss is switched on where it has a switch), and that is part of the loss "
        "compared. A refused type is refused by `planner profile` in these words.",
        "",
        "Made by `python benchmarks/coverage.py`; `planner check TYPE` shows one "
        "type cut by cut.",
        "",
        "| type | class | status | legal cuts | travels | adds | illegal or refused |",
        "|---|---|---|---|---|---|---|",
        *map(line, rows),
    ]
    return "\n".join(lines) + "\n"


def line(row: Coverage) -> str:
    """One type."""
    cells = (
        row.model_type,
        row.architecture,
        row.status,
        f"{row.num_legal} of {row.num_cuts}" if row.num_cuts else "",
        ", ".join(row.travels),
        "yes" if row.adds_loss else "",
        row.detail,
    )
    return "| " + " | ".join(x.replace("|", "\\|") for x in cells) + " |"


if __name__ == "__main__":
    main()
