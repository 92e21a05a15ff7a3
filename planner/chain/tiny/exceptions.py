"""Types of models whose configuration the general rules do not fit."""

from collections.abc import Callable, Mapping
from typing import Any

# Fields that must be given before a configuration of the type can be made.
START_FIELDS: Mapping[str, dict[str, Any]] = {}

# Model type to the fields that it needs instead, from the fields so far.
EXCEPTIONS: Mapping[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {}
