"""Leaves out, loudly, what this machine cannot run or is asked for by marker."""

import os
import shutil
import tempfile
from collections import Counter

# transformers copies the code that a model brings before it runs it: for the tests
# to a folder of their own, which it reads the name of when it is imported.
CODE_CACHE = tempfile.mkdtemp(prefix="planner-tests-code-")
os.environ["HF_MODULES_CACHE"] = CODE_CACHE

import torch  # noqa: E402
import transformers  # noqa: E402

LEFT_OUT: dict[str, dict[str, int]] = {}

# As each process of a run; tiny models only wait for more threads.
torch.set_num_threads(1)


def pytest_unconfigure():
    shutil.rmtree(CODE_CACHE, ignore_errors=True)


def pytest_addoption(parser):
    parser.addoption(
        "--network", action="store_true", help="also run tests that need a hub"
    )


def pytest_collection_modifyitems(config, items):
    unable = set()
    if not torch.cuda.is_available():
        unable.add("gpu")
    if not config.getoption("--network"):
        unable.add("network")
    if "coverage" not in config.getoption("markexpr"):
        unable.add("coverage")
    if int(transformers.__version__.split(".")[0]) < 5:
        unable.add("transformers5")
    left_out = [
        item for item in items if unable & {m.name for m in item.iter_markers()}
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
        names = Counter(m.name for item in left_out for m in item.iter_markers())
        output = getattr(config, "workeroutput", LEFT_OUT)
        output["left out"] = {n: names[n] for n in sorted(unable & set(names))}


def pytest_testnodedown(node):
    """Take over what a process of pytest-xdist left out: each leaves out the same."""
    LEFT_OUT.update({"left out": node.workeroutput.get("left out", {})})


def pytest_terminal_summary(terminalreporter):
    for name, number in LEFT_OUT.get("left out", {}).items():
        terminalreporter.line(f"left out: {number} tests marked {name}")
