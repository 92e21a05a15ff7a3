"""Pictures, tables and one HTML page from a plan or a run."""

from pathlib import Path


def write_report(source: Path, out_dir: Path, *, num_tokens: int = 10**9) -> Path:
    """Write the HTML page of a plan or a run, and its figures beside it.

    Args:
        source: A plan's JSON file or a run directory.
        out_dir: Folder of the report; made if absent. Holds `report.html`, one
            PNG a figure and, for a run, the compared numbers as CSV.
        num_tokens: To say how long training on so many takes.

    Returns:
        Path of the HTML page.

    Raises:
        ArtifactError: The source cannot be read, or the folder not be written.
    """
    from planner.report import page  # only now: its libraries take a second to import

    return page.write_report(source, out_dir, num_tokens=num_tokens)


__all__ = ["write_report"]
