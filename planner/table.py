"""Tables for the terminal: columns as wide as their longest entry."""

from collections.abc import Sequence


def format_table(
    header: Sequence[str], rows: Sequence[Sequence[str]], *, num_left: int = 1
) -> str:
    """Write a table.

    Args:
        header: Column titles.
        rows: As many entries a row as there are titles.
        num_left: So many first columns are left-aligned, the others right-aligned.

    Returns:
        Lines without a newline at the end.
    """
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if column < num_left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )
