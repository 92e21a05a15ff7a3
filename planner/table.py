"""Tables for the terminal: columns as wide as their longest entry."""

from collections.abc import Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Write a table; the first column is left-aligned, the others right-aligned.

    Args:
        header: Column titles.
        rows: As many entries a row as there are titles.

    Returns:
        Lines without a newline at the end.
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(_format_line(line, widths).rstrip() for line in lines)


def _format_line(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *others = zip(line, widths, strict=True)
    cells = [first[0].ljust(first[1]), *(text.rjust(width) for text, width in others)]
    return "  ".join(cells)
