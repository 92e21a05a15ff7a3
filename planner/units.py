"""How bytes, seconds and counts are written for people and read from them.

Everywhere else a number is in bytes, seconds or FLOPs and its name says so
(`_bytes`, `_s`, `_flops`). Only this module knows about GiB and ms.
"""

import re

from planner.errors import WishError

KIB = 1024
MIB = 1024**2
GIB = 1024**3

_BINARY = {"": 1, "B": 1, "KIB": KIB, "MIB": MIB, "GIB": GIB, "TIB": 1024**4}
_DECIMAL = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_COUNTS = {"": 1, "K": 10**3, "M": 10**6, "B": 10**9, "T": 10**12}
_BYTES = re.compile(r"\s*(?P<number>\d+(?:\.\d+)?|\.\d+)\s*(?P<unit>[A-Za-z]*)\s*")


def parse_bytes(text: str) -> int:
    """Read `24GiB`, `24GB` or plain bytes.

    Args:
        text: A number, optionally with a unit; upper or lower case.

    Returns:
        The size [bytes], rounded down.

    Raises:
        WishError: `text` is not a size.
    """
    match = _BYTES.fullmatch(text)
    factor = match and (_BINARY | _DECIMAL).get(match["unit"].upper())
    if not match or not factor:
        msg = f"'{text}' is not a size; write for example 24GiB, 24GB or 25769803776"
        raise WishError(msg)
    return int(float(match["number"]) * factor)


def format_bytes(num_bytes: float) -> str:
    """Write a size with a binary unit.

    Args:
        num_bytes: The size [bytes].

    Returns:
        For example `21.4 GiB`, `512 MiB` or `96 B`.
    """
    if abs(num_bytes) >= 100 * GIB:
        # Tenths decide whether a model fits on a few cards.
        return f"{num_bytes / GIB:.1f} GiB"
    for unit, factor in (("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if abs(num_bytes) >= factor:
            return f"{_three_digits(num_bytes / factor)} {unit}"
    return f"{num_bytes:.0f} B"


def format_seconds(seconds: float) -> str:
    """Write a duration with the unit that suits it.

    Args:
        seconds: The duration [s].

    Returns:
        For example `1.52 s`, `24.1 ms` or `130 us`; nothing is `0 s`.
    """
    if seconds == 0:
        return "0 s"
    for unit, factor in (("s", 1.0), ("ms", 1e-3)):
        if abs(seconds) >= factor:
            return f"{_three_digits(seconds / factor)} {unit}"
    return f"{_three_digits(seconds / 1e-6)} us"


def parse_count(text: str) -> int:
    """Read `1B`, `300M`, `20k`, `1.5T` or a plain number.

    Args:
        text: A number, optionally with a unit; upper or lower case.

    Returns:
        The count, at least 1.

    Raises:
        WishError: `text` is no such count.
    """
    match = _BYTES.fullmatch(text)
    factor = match and _COUNTS.get(match["unit"].upper())
    count = round(float(match["number"]) * factor) if match and factor else 0
    if count < 1:
        msg = f"'{text}' is not a count; write for example 1B, 300M or 20000"
        raise WishError(msg)
    return count


def format_count(count: float) -> str:
    """Write a large count, as of parameters or FLOPs.

    Args:
        count: How many.

    Returns:
        For example `6.74 B`, `135 M` or `512`.
    """
    for unit, factor in (("T", 1e12), ("B", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= factor:
            return f"{_three_digits(count / factor)} {unit}"
    return f"{count:.0f}"


def format_figure(number: float) -> str:
    """Write a number whose unit stands elsewhere, as above its column.

    Args:
        number: Any.

    Returns:
        At least three significant digits from 0.1 up, such as `0.25` or `1234`;
        `<0.01` for less that is not nothing.
    """
    if number == 0:
        return "0"
    return "<0.01" if 0 < number < 0.005 else _three_digits(number)


def format_percent(share: float) -> str:
    """Write a share of one as percent.

    Args:
        share: A share, 1.0 for all.

    Returns:
        For example `27.3 %`.
    """
    return f"{100 * share:.1f} %"


def unit_for_bytes(largest_bytes: float) -> tuple[str, int]:
    """The one unit for an axis or a column of sizes.

    Args:
        largest_bytes: The largest of them [bytes].

    Returns:
        Name of the unit and how many bytes it is.
    """
    units = (("GiB", GIB), ("MiB", MIB), ("KiB", KIB))
    return next((unit for unit in units if largest_bytes >= unit[1]), ("B", 1))


def unit_for_seconds(largest_s: float) -> tuple[str, float]:
    """The one unit for an axis or a column of durations.

    Args:
        largest_s: The longest of them [s].

    Returns:
        Name of the unit and how many seconds it is.
    """
    units = (("s", 1.0), ("ms", 1e-3))
    return next((unit for unit in units if largest_s >= unit[1]), ("us", 1e-6))


def _three_digits(number: float) -> str:
    """At least three significant digits, no exponent, no trailing zeros lost."""
    size = abs(number)
    decimals = 2 if size < 10 else 1 if size < 100 else 0
    return f"{number:.{decimals}f}"
