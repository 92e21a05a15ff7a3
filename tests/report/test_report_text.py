import subprocess
import sys

from report_samples import make_measured, make_plan, make_v_plan

from planner.report.spans import predicted_spans
from planner.report.text import balance_text, timeline_text
from planner.schedule.actions import parse_action
from planner.simulate import Span


def spans(*rows):
    """Back to back from 0, as in `0F0 1.0`; a row without an action is a bubble."""
    found = []
    for device, row in enumerate(rows):
        at_s = 0.0
        for entry in row:
            name, length = entry.split()
            if name != "..":
                action = parse_action(name)
                end_s = at_s + float(length)
                found.append(
                    Span(device=device, action=action, start_s=at_s, end_s=end_s)
                )
            at_s += float(length)
    return tuple(found)


def test_a_timeline_is_to_scale():
    step = spans(
        ["0F0 1", "0F1 1", ".. 3", "0B0 2", ".. 1", "0B1 2"],
        [".. 1", "1F0 1", "1B0 3", "1F1 1", "1B1 2"],
    )
    assert timeline_text(step, num_columns=30) == "\n".join(
        [
            "stage 0  F0-F1-.........B0----...B1----",
            "stage 1  ...F0-B0-------F1-B1----......",
        ]
    )


def test_two_timelines_can_share_a_scale():
    step = spans(["0F0 1", "0B0 1"])
    assert timeline_text(step, num_columns=8, until_s=4.0) == "stage 0  F0B0...."


def test_short_actions_show_their_kind():
    assert (
        timeline_text(spans(["0F10 1", "0B10 3"]), num_columns=8) == "stage 0  F-B10---"
    )


def test_a_device_with_two_stages_names_both_there_and_in_each_action():
    step = spans(["0F0 1", "1F0 1"])
    assert timeline_text(step, num_columns=8) == "stage 0,1  0F0-1F0-"
    assert timeline_text(step, num_columns=4) == "stage 0,1  F-F-"


def test_the_balance_is_one_aligned_table():
    lines = balance_text(make_plan(((0.1, 0.2), (0.13, 0.27)))).splitlines()
    assert lines[0].split() == [
        *("stage", "device", "layers", "F", "B", "F", "+", "B"),
        *("memory", "reserve", "capacity"),
    ]
    assert lines[1].split()[:9] == [
        *("0", "rtx3090:0", "3", "100", "ms", "200", "ms", "300", "ms")
    ]
    assert lines[1].count("#") / lines[2].count("#") == 300 / 400
    assert "< bottleneck" in lines[2]
    assert "< bottleneck" not in lines[1]
    assert len(lines[1]) == len(lines[2])
    assert lines[4].startswith("Stage 1 is the bottleneck")


def test_the_balance_of_a_run_has_what_was_measured():
    plan = make_plan()
    text = balance_text(plan, make_measured(plan))
    assert "315 ms" in text.splitlines()[1]
    assert "17.6 GiB" in text.splitlines()[1]


def test_a_stage_that_does_not_fit_says_so():
    assert "18.5 GiB, 614 MiB short" in balance_text(make_plan(capacity_gib=18.5))


def test_text_needs_no_drawing_library():
    code = (
        "import sys, planner.report.text;"
        "sys.exit(bool({'matplotlib', 'pandas', 'torch'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_large_timeline_has_one_line_a_device():
    plan = make_plan(((0.1, 0.2),) * 16, num_microbatches=64)
    lines = timeline_text(predicted_spans(plan)).splitlines()
    assert len(lines) == 16
    assert len({len(line) for line in lines}) == 1


def test_the_balance_of_a_card_with_two_stages_has_its_memory_once():
    plan = make_v_plan()
    lines = balance_text(plan, make_measured(plan, with_devices=True)).splitlines()
    assert " F I W F + I + W " in " ".join(lines[0].split())
    assert lines[1].endswith("16.4 GiB  15.9 GiB  1.00 GiB  23.7 GiB")
    assert lines[4].endswith("with stage 0")
    assert ["< bottleneck" in line for line in lines[1:5]] == [True, False, False, True]
    assert lines[2].split()[3:9] == ["140", "ms", "156", "ms", "104", "ms"]
