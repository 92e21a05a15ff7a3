"""A timeline as text, to scale."""

from planner.simulate.timeline import Timeline


def timeline_rows(timeline: Timeline, cell_s: float) -> list[str]:
    """Draw a timeline as text, to scale.

    Args:
        timeline: What to draw.
        cell_s: Time of one column [s].

    Returns:
        One line a device: in each column the action that runs in its middle, or
        dots; with the stage in front where a device has several.
    """
    stages: dict[int, set[int]] = {d: set() for d in range(timeline.num_devices)}
    for span in timeline.spans:
        stages[span.device].add(span.action.stage)
    several = any(len(on_device) > 1 for on_device in stages.values())
    num_cells = round(timeline.makespan_s / cell_s)
    grid = [[""] * num_cells for _ in range(timeline.num_devices)]
    for span in timeline.spans:
        label = f"{span.action.kind}{span.action.microbatch}"
        for cell in range(num_cells):
            if span.start_s <= (cell + 0.5) * cell_s < span.end_s:
                prefix = str(span.action.stage) if several else ""
                grid[span.device][cell] = prefix + label
    width = max((len(label) for row in grid for label in row), default=1)
    return [
        " ".join((label or "..").ljust(width) for label in row).rstrip() for row in grid
    ]
