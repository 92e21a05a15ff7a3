"""What to install when a model's own code cannot be imported.

Code on the hub is usually written for the transformers of its day, and asks for
modules that a later one removed.
"""

import re

import transformers

_OLD, _NEW = "'transformers>=4.57,<5'", "'transformers>=5,<6'"


def import_advice(model_id: str, error: ImportError) -> str:
    """Say what is missing and which command helps.

    Args:
        model_id: The model, as the user gave it.
        error: What its code raised.

    Returns:
        One line.
    """
    missing = _missing(error)
    if not missing:
        text = " ".join(str(error).split())
        return f"the code of {model_id} cannot be imported: {text}"
    names = ", ".join(missing)
    if missing[0].split(".")[0] != "transformers":
        packages = " ".join(dict.fromkeys(x.split(".")[0] for x in missing))
        return (
            f"the code of {model_id} needs {names}, which is not installed here: "
            f"pip install {packages}"
        )
    version = transformers.__version__
    is_new = int(version.split(".")[0]) >= 5
    return (
        f"the code of {model_id} needs {names}, which transformers {version} does "
        f"not have; it was written for {'an older' if is_new else 'a newer'} one: "
        f"pip install {_OLD if is_new else _NEW}"
    )


def _missing(error: ImportError) -> list[str]:
    """Modules, or names with their module, that could not be imported."""
    # transformers looks through a file's imports before it runs it.
    listed = re.search(r"not found in your environment: (.+?)\. Run", str(error))
    if listed:
        return listed[1].split(", ")
    if not error.name:
        return []
    part = re.search(r"cannot import name '(\w+)'", str(error))
    return [f"{error.name}.{part[1]}" if part else error.name]
