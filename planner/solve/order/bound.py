"""What no order of some stages can beat, in microseconds of arithmetic.

For each device, with `head` the first output's way to its lowest stage and `tail`
the last gradient's way from there to stage 0:

    work     head + its work, then tail; W may lie behind the last gradient, at the
             price of splitting that B
    waiting  until the first output or gradient comes back to a device it can only
             do Fs of the stages before, as many as there are and as have room
    room     each microbatch occupies its bytes from F to the end of B or I, and
             bytes times seconds of all cannot exceed room times (end - head - tail)

With one stage a device, equal times and free links this is the textbook's fill:
exact for ZB-H1 with room for it, a few percent low where stages share a device.
"""

from planner.solve.order.problem import B, F, OrderProblem, W


def bound_s(problem: OrderProblem) -> float:
    """Lower bound of the makespan of any order.

    Args:
        problem: Times, homes and memory.

    Returns:
        No order of these stages on these devices ends before [s].
    """
    ways = _Ways(problem)
    devices = range(problem.num_devices)
    return max(_device_bound_s(problem, ways, device) for device in devices)


class _Ways:
    """Times that one microbatch alone needs, per stage.

    Attributes:
        output_s: When its input arrives there at the earliest [s].
        gradient_s: When the gradient of its output arrives there at the earliest [s].
        tail_s: From the end of its I or B to the end of stage 0's [s].
    """

    def __init__(self, problem: OrderProblem) -> None:
        own_s, send_s = problem.duration_s, problem.send_s
        count = problem.num_stages
        self.output_s, self.tail_s = [0.0] * count, [0.0] * count
        for s in range(1, count):
            before = 4 * (s - 1) + F
            self.output_s[s] = self.output_s[s - 1] + own_s[before] + send_s[before]
            self.tail_s[s] = problem.send_s[4 * s + B] + self.tail_s[s - 1]
            # Stage 0 does all of B, whole or split, before the step ends.
            last_s = least_backward_s(problem, 0) - problem.send_s[B]
            quick_s = problem.quick_backward_s(s - 1) - problem.send_s[4 * (s - 1) + B]
            self.tail_s[s] += last_s if s == 1 else quick_s
        self.gradient_s = [0.0] * count
        self.gradient_s[-1] = self.output_s[-1] + own_s[4 * count - 4 + F]
        for s in reversed(range(count - 1)):
            back_s = problem.quick_backward_s(s + 1)
            self.gradient_s[s] = self.gradient_s[s + 1] + back_s


def least_backward_s(problem: OrderProblem, stage: int) -> float:
    """The least work of a backward.

    Args:
        problem: Times.
        stage: From 0.

    Returns:
        Of B, or of I and W where they are quicker [s].
    """
    whole_s = problem.duration_s[4 * stage + B]
    if not problem.may_split(stage):
        return whole_s
    return whole_s + min(problem.splitting_s(stage), 0.0)


def _device_bound_s(problem: OrderProblem, ways: _Ways, device: int) -> float:
    own_s, stages = problem.duration_s, problem.stages[device]
    count, lowest = problem.num_microbatches, stages[0]
    work_s = count * sum(
        own_s[4 * s + F] + least_backward_s(problem, s) for s in stages
    )
    rest_s = _after_start_s(problem, device, work_s, ways.tail_s[lowest])
    bounds_s = [ways.output_s[lowest] + rest_s]
    for turn, stage in enumerate(stages):
        # Before the first input of `stage` only the stages before it have work.
        done_s = _most_forward_s(problem, device, stages[:turn])
        bounds_s.append(ways.output_s[stage] - done_s + rest_s)
    done_s = _most_forward_s(problem, device, stages)
    bounds_s.append(ways.gradient_s[stages[-1]] - done_s + rest_s)

    room = problem.room_bytes[device]
    area = count * sum(
        problem.kept_bytes[s]
        * (ways.gradient_s[s] - ways.output_s[s] + _quick_s(problem, s))
        for s in stages
    )
    if area and room < float("inf"):
        bounds_s.append(ways.output_s[lowest] + area / room + ways.tail_s[lowest])
    return max(bounds_s)


def _quick_s(problem: OrderProblem, stage: int) -> float:
    return problem.quick_backward_s(stage) - problem.send_s[4 * stage + B]


def _after_start_s(
    problem: OrderProblem, device: int, work_s: float, tail_s: float
) -> float:
    """Least time from when a device starts, never waiting, to the end of the step.

    With W of the last gradients put off, the last of them leaves earlier; each B
    that is split for it adds to the work. A choice in fractions is a bound.
    """
    stages = problem.stages[device]
    count, own_s = problem.num_microbatches, problem.duration_s
    early_s, cost_s = 0.0, 0.0
    possible = sorted(
        (max(problem.splitting_s(s), 0.0) / own_s[4 * s + W], s)
        for s in stages
        if problem.may_split(s) and own_s[4 * s + W] > 0
    )
    for price, stage in possible:
        # Putting off x seconds of W: the end moves to work + cost + price x, the
        # last gradient to work + cost + price x + tail - early - x.
        if price >= 1:
            break
        x_s = min(count * own_s[4 * stage + W], max(tail_s - early_s, 0.0))
        early_s += x_s
        cost_s += price * x_s
    return work_s + cost_s + max(tail_s - early_s, 0.0)


def _most_forward_s(
    problem: OrderProblem, device: int, stages: tuple[int, ...]
) -> float:
    """The most time in Fs before any backward: a knapsack in fractions [s]."""
    own_s, kept = problem.duration_s, problem.kept_bytes
    room = problem.room_bytes[device]
    total_s = 0.0
    by_value = sorted(
        stages, key=lambda s: kept[s] / own_s[4 * s + F] if own_s[4 * s + F] else 0.0
    )
    for stage in by_value:
        number = float(problem.num_microbatches)
        if kept[stage]:
            number = min(number, room / kept[stage])
        total_s += number * own_s[4 * stage + F]
        room -= number * kept[stage]
    return total_s
