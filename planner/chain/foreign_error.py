"""Errors of somebody else's code: a model's own may raise anything."""


def one_line(error: Exception) -> str:
    """An error of somebody else's code, short.

    Args:
        error: Any.

    Returns:
        Its class and the first line of its text.
    """
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
