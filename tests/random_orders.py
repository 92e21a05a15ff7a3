"""Orders, times and sizes for properties that hold for all of them."""

from hypothesis import assume
from hypothesis import strategies as st

from planner.memory import StageBytes
from planner.schedule.named import SCHEDULES, schedule_actions
from planner.simulate import StageTimes, Transfers

seconds = st.floats(0, 10)
sizes = st.integers(0, 1000)

times_of_a_stage = st.builds(
    StageTimes,
    forward_s=seconds,
    backward_s=seconds,
    input_grad_s=seconds,
    weight_grad_s=seconds,
    send_forward_s=seconds,
    send_backward_s=seconds,
)
bytes_of_a_stage = st.builds(
    StageBytes,
    weights_bytes=sizes,
    gradients_bytes=sizes,
    optimizer_bytes=sizes,
    input_bytes=sizes,
    output_bytes=sizes,
    kept_bytes=sizes,
    held_bytes=sizes,
    held_input_bytes=sizes,
    held_output_grad_bytes=sizes,
    forward_peak_bytes=sizes,
    backward_peak_bytes=sizes,
    first_backward_peak_bytes=sizes,
    input_grad_peak_bytes=sizes,
    weight_grad_peak_bytes=sizes,
    first_weight_grad_peak_bytes=sizes,
    step_peak_bytes=sizes,
)
ways_to_transfer = st.builds(
    Transfers,
    occupy=st.sampled_from(["neither", "sender", "both"]),
    queued=st.booleans(),
)


def num_stages_of(actions):
    return len({action.stage for row in actions for action in row})


@st.composite
def named_orders(draw, names=tuple(SCHEDULES)):
    """The actions of some named schedule of moderate size."""
    schedule = SCHEDULES[draw(st.sampled_from(names))]
    num_devices, num_microbatches = draw(st.integers(1, 4)), draw(st.integers(1, 8))
    most = schedule.max_stages_per_device or 3
    stages = draw(st.integers(schedule.min_stages_per_device, most))
    assume(not schedule.problem(num_devices, num_microbatches, stages))
    return schedule_actions(schedule.name, num_devices, num_microbatches, stages)


@st.composite
def orders_with_times(draw):
    """Actions, and times for every stage."""
    actions = draw(named_orders())
    count = num_stages_of(actions)
    return actions, draw(st.lists(times_of_a_stage, min_size=count, max_size=count))


@st.composite
def rows_with_bytes(draw):
    """The row of one device, and the memory of its stages."""
    row = draw(st.sampled_from(draw(named_orders())))
    stages = sorted({action.stage for action in row})
    return row, {stage: draw(bytes_of_a_stage) for stage in stages}
