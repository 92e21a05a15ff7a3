"""The types that are known to train the same when they are cut.

`exact_types.json` beside this file holds them; `benchmarks/coverage.py` writes it.
"""

from dataclasses import dataclass
from pathlib import Path

import transformers

from planner import artifact

EXACT_TYPES = Path(__file__).with_name("exact_types.json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactTypes:
    """Types that were exact under every legal cut.

    Attributes:
        transformers: Version in which they were tried.
        torch: Version with which they were tried.
        types: Names of the types.
    """

    transformers: str
    torch: str
    types: tuple[str, ...]


def is_known_exact(model_type: str) -> bool:
    """Look a type up.

    Args:
        model_type: Of transformers' own; code of a model's own is never known.

    Returns:
        Whether it was exact in the major and minor version of transformers that
        is installed.
    """
    known = artifact.load(EXACT_TYPES, ExactTypes)
    same = _minor(known.transformers) == _minor(transformers.__version__)
    return same and model_type in known.types


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
