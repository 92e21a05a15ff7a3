"""The profiles in the current folder, in the order they were made."""

import json
from datetime import datetime
from pathlib import Path

PROFILES = Path("profiles")


def newest_first() -> list[Path]:
    """All profiles in `profiles/`.

    Returns:
        Paths relative to the current folder, the one made last first.
    """
    return sorted(PROFILES.glob("*.json"), key=_made, reverse=True)


def _made(path: Path) -> tuple[float, float]:
    """When a profile was made, and written [s]: a fresh clone's files are all new."""
    written_s = path.stat().st_mtime
    try:
        created = json.loads(path.read_bytes())["created"]
        return datetime.fromisoformat(created).timestamp(), written_s
    except (ValueError, KeyError, TypeError, OSError):
        return written_s, written_s  # written by hand
