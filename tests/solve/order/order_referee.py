"""The quickest order of a small problem, by an integer program over whole seconds.

    x[code, m, t] = 1   the action starts at t
    one of B and I for each stage and microbatch; W if and only if I
    what an action waits for has ended, and arrived, when it starts
    one action at a time on a device; its bytes within its room at every second

Slow and simple; it knows nothing of rows, rules or critical paths.
"""

import pulp

from planner.solve.order.problem import B, F, I, OrderProblem, W


def quickest_s(problem: OrderProblem, horizon_s: int) -> float:
    """The smallest makespan of any order that ends by `horizon_s`, proven."""
    stages, count = range(problem.num_stages), problem.num_microbatches
    duration = [round(d) for d in problem.duration_s]
    send = [round(s) for s in problem.send_s]
    program = pulp.LpProblem("quickest_order", pulp.LpMinimize)
    first, last = _windows(duration, send, horizon_s)
    starts = {
        (code, m, t): program.add_variable(f"x_{code}_{m}_{t}", 0, 1, pulp.LpInteger)
        for code in range(4 * len(stages))
        for m in range(count)
        for t in range(first[code], last[code] + 1)
    }
    end = program.add_variable("end", 0, horizon_s, pulp.LpContinuous)
    program += end

    def begun(code, m, until):
        """Whether an action has started by a second."""
        until = min(until, last[code])
        return pulp.lpSum(starts[code, m, t] for t in range(first[code], until + 1))

    def ended(code, m, until):
        return begun(code, m, until - duration[code])

    def arrived(codes, m, until):
        return pulp.lpSum(ended(code, m, until - send[code]) for code in codes)

    for s in stages:
        forward, whole, part, weight = (4 * s + kind for kind in (F, B, I, W))
        for m in range(count):
            program += begun(forward, m, horizon_s) == 1
            program += begun(whole, m, horizon_s) + begun(part, m, horizon_s) == 1
            program += begun(weight, m, horizon_s) == begun(part, m, horizon_s)
            for t in range(horizon_s + 1):
                back = begun(whole, m, t) + begun(part, m, t)
                program += back <= ended(forward, m, t)
                program += begun(weight, m, t) <= ended(part, m, t)
                if s > 0:
                    program += begun(forward, m, t) <= arrived([forward - 4], m, t)
                if s + 1 < len(stages):
                    program += back <= arrived([whole + 4, part + 4], m, t)
                if m + 1 < count:  # alike, so first come, first served
                    program += begun(forward, m + 1, t) <= begun(forward, m, t)
            for code in (forward, whole, part, weight):
                program += end >= pulp.lpSum(
                    (t + duration[code]) * starts[code, m, t]
                    for t in range(first[code], last[code] + 1)
                )
    for device, own in enumerate(problem.stages):
        codes = [4 * s + kind for s in own for kind in range(4)]
        for t in range(horizon_s + 1):
            program += (
                pulp.lpSum(
                    begun(code, m, t) - ended(code, m, t)
                    for code in codes
                    for m in range(count)
                )
                <= 1
            )
            if problem.room_bytes[device] < float("inf"):
                program += (
                    pulp.lpSum(
                        problem.growth_bytes[code]
                        * (begun if code % 4 == F else ended)(code, m, t)
                        for code in codes
                        for m in range(count)
                    )
                    <= problem.room_bytes[device]
                )
    # Makespans are whole seconds: less than one of them apart is proven.
    program.solve(pulp.HiGHS(msg=False, timeLimit=60, gapAbs=0.99))
    assert program.sol_status == pulp.LpSolutionOptimal
    return pulp.value(program.objective)


def _windows(duration, send, horizon_s):
    """Per code the first and last second at which it can start, alone on earth."""
    codes = len(duration)
    first, last = [0] * codes, [horizon_s - d for d in duration]
    ready = 0
    for forward in range(0, codes, 4):
        first[forward] = ready
        ready += duration[forward] + send[forward]
    due = horizon_s
    for forward in range(0, codes, 4):
        whole, part, weight = forward + B, forward + I, forward + W
        last[whole] = due - duration[whole]
        last[part] = min(due, last[weight]) - duration[part]
        due = max(last[whole], last[part])
        if forward + 4 < codes:
            due -= send[whole + 4]
    for forward in reversed(range(0, codes, 4)):
        whole, part, weight = forward + B, forward + I, forward + W
        first[whole] = first[part] = ready
        first[weight] = ready + duration[part]
        ready += min(duration[whole], duration[part]) + send[whole]
        last[forward] = due - duration[forward]
        due = last[forward] - (send[forward - 4] if forward else 0)
    return first, last
