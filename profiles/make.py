"""Make the sample profiles again: `python profiles/make.py [NAME...]`.

Each folder in `configs/` holds the facts of one model, its `config.json`. The model
is profiled for an RTX 3090 by the program itself, from these facts alone, and the
profile is written beside this script under the model's name on the hub.
"""

import dataclasses
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from planner import artifact
from planner.model_profile import load_profile

HERE = Path(__file__).resolve().parent
CONFIGS = HERE / "configs"
CARD = "rtx3090"
OPTIONS = ["--device", CARD, "--dtype", "bfloat16", "--seq-len", "2048"]
OPTIONS += ["--microbatch-size", "1,2,4", "--trust-remote-code"]
# Stands in for code that belongs to others; see README.md.
OWN_CODE = HERE.parent / "tests" / "remote_model"


def make(name: str) -> None:
    """Write one sample.

    Args:
        name: Of a folder in `configs/`.

    Raises:
        subprocess.CalledProcessError: The program refused; it says why on stderr.
    """
    path = HERE / f"{name}-{CARD}.json"
    config = json.loads((CONFIGS / name / "config.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / name
        shutil.copytree(CONFIGS / name, folder)
        if "auto_map" in config:
            for code in OWN_CODE.glob("*.py"):
                shutil.copy(code, folder)
        command = [sys.executable, "-m", "planner", "profile", str(folder), *OPTIONS]
        subprocess.run([*command, "-o", str(path)], check=True)
    found = load_profile(path)
    model = dataclasses.replace(found.model, id=config["_name_or_path"])
    # What needs no code of its own is not to be run with that permission.
    artifact.save(
        dataclasses.replace(found, model=model, trust_remote_code="auto_map" in config),
        path,
    )


if __name__ == "__main__":
    for wanted in sys.argv[1:] or sorted(path.name for path in CONFIGS.iterdir()):
        make(wanted)
