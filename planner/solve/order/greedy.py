"""One order by a rule: whenever a device is free it does what matters most.

What matters most is what has the longest way to the end: the actions that must
still follow for this microbatch, and one turn of the busiest device for each
microbatch behind it. W waits until nothing else can run or its room is needed.

No order of this kind gets stuck. An F starts only if on its device, every pending
W done, the oldest microbatch still has room to end, then the next, and so on; so
the oldest microbatch of all can always go on.
"""

from dataclasses import dataclass

from planner.solve.order.problem import B, F, I, OrderProblem, Rows, W


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How a device chooses.

    Attributes:
        age: What a microbatch behind counts, in turns of the busiest device; large
            values serve the oldest microbatch first.
        patience: How long a device waits for something that matters more, in
            durations of what it could do meanwhile.
        slack: Microbatches in flight on a stage beyond what its way to the end
            and back takes; infinite for what the room allows.
        split_first: Of how many microbatches at the start B is split.
        split_last: Of how many microbatches at the end B is split.
        eager: Whether W comes before F.
    """

    age: float = 1.0
    patience: float = 0.0
    slack: float = float("inf")
    split_first: int = 0
    split_last: int = 0
    eager: bool = False


def greedy_rows(problem: OrderProblem, rule: Rule) -> Rows:
    """Build an order action by action.

    Args:
        problem: Times, homes and memory.
        rule: How a device chooses.

    Returns:
        Valid rows that keep to the room of every device.
    """
    run = _Run(problem, rule)
    devices = range(problem.num_devices)
    choice = [run.choose(device) for device in devices]
    while True:
        start_s, device, code = min(
            (chosen[0], device, chosen[1]) for device, chosen in enumerate(choice)
        )
        if code < 0:
            break
        for touched in run.commit(device, start_s, code):
            choice[touched] = run.choose(touched)
    return tuple(tuple(row) for row in run.rows)


_NOTHING = (float("inf"), -1)


class _Run:
    """What the devices have done so far."""

    def __init__(self, problem: OrderProblem, rule: Rule) -> None:
        self.problem, self.rule = problem, rule
        count = problem.num_stages
        self.rows: list[list[int]] = [[] for _ in problem.stages]
        self.free_s = [0.0] * problem.num_devices
        self.level = [0.0] * problem.num_devices
        self.done = [0] * (4 * count)
        # Per code: when what the n-th such action needs from elsewhere arrives.
        always = [0.0] * problem.num_microbatches
        self.arrivals: list[list[float]] = [[] for _ in range(4 * count)]
        self.arrivals[F] = always
        self.arrivals[4 * count - 4 + B] = always
        self.whole = [sum(problem.kept_bytes[s] for s in own) for own in problem.stages]
        self.room = [room * (1 + 1e-12) for room in problem.room_bytes]
        self.ways_s = ways_s(problem)
        self.turn_s = turn_s(problem)
        self.age_s = rule.age * self.turn_s
        self.limits = self._limits()
        self.splittable = [
            problem.may_split(s) and (s > 0 or problem.splitting_s(s) < 0)
            for s in range(count)
        ]

    def _limits(self) -> list[float]:
        """Most microbatches in flight per stage that the rule allows."""
        if not self.turn_s:
            return [float("inf")] * self.problem.num_stages
        own_s = self.problem.duration_s
        return [
            max((way_s + own_s[4 * s + W]) / self.turn_s + self.rule.slack, 1.0)
            for s, way_s in enumerate(self.ways_s[F::4])
        ]

    def choose(self, device: int) -> tuple[float, int]:
        """What a device does next as far as it knows, and when it starts."""
        now_s, done = self.free_s[device], self.done
        options, blocked = [], False
        for stage in self.problem.stages[device]:
            forward, backward = 4 * stage + F, 4 * stage + B
            forwards, backwards = done[forward], done[backward]
            in_flight = forwards - backwards
            arrived = self.arrivals[forward]
            if forwards < len(arrived) and in_flight < self.limits[stage]:
                if self._has_room(device, stage):
                    options.append(self._option(forward, now_s, arrived[forwards]))
                else:
                    blocked = True
            arrived = self.arrivals[backward]
            if in_flight and backwards < len(arrived):
                code = self._backward_code(stage, backwards)
                options.append(self._option(code, now_s, arrived[backwards]))
        weight = self._next_weight(device)
        if weight >= 0:
            needed = blocked or self.rule.eager
            key = self._before_forward(options) if needed else -self.ways_s[weight]
            options.append((key, now_s, weight))
        if len(options) > 1:
            return self._preferred(options)
        return options[0][1:] if options else _NOTHING

    def _option(
        self, code: int, now_s: float, ready_s: float
    ) -> tuple[float, float, int]:
        """Smaller sorts first: how long the way to the end is, when it starts, what."""
        number = self.done[code if code & 3 == F else (code | 3) - W + B]
        behind_s = (self.problem.num_microbatches - number) * self.age_s
        return -(self.ways_s[code] + behind_s), max(ready_s, now_s), code

    def _preferred(self, options: list[tuple[float, float, int]]) -> tuple[float, int]:
        options.sort()
        first_s = min(start_s for _, start_s, _ in options)
        wait_s = 0.0
        if self.rule.patience:
            instead = next(code for _, start_s, code in options if start_s <= first_s)
            wait_s = self.rule.patience * self.problem.duration_s[instead]
        for _, start_s, code in options:
            if start_s <= first_s + wait_s:
                return start_s, code
        return _NOTHING

    def _backward_code(self, stage: int, number: int) -> int:
        rule, problem = self.rule, self.problem
        split = number < rule.split_first or (
            number >= problem.num_microbatches - rule.split_last
        )
        device = problem.home[stage]
        grown = self.level[device] + problem.growth_bytes[4 * stage + I]
        if split and self.splittable[stage] and grown <= self.room[device]:
            return 4 * stage + I
        return 4 * stage + B

    def _has_room(self, device: int, stage: int) -> bool:
        """Whether F fits now and leaves a way for all microbatches to end."""
        kept = self.problem.kept_bytes
        own, room = kept[stage], self.room[device]
        if self.level[device] + own > room:
            return False
        if self.level[device] + own + self.whole[device] <= room:
            return True
        done, count = self.done, self.problem.num_microbatches
        counts = [
            (kept[s], done[4 * s + F] + (s == stage), done[4 * s + B])
            for s in self.problem.stages[device]
        ]
        # One after the other, oldest first: what it and those behind it hold, and
        # what it still needs. Both change only where a stage has done no more F.
        oldest = min(backwards for _, _, backwards in counts)
        for number in (oldest, *(forwards for _, forwards, _ in counts)):
            needed = 0.0
            for size, forwards, backwards in counts:
                if forwards > number:
                    needed += size * (forwards - max(number, backwards))
                elif number < count:
                    needed += size
            if needed > room:
                return False
        return True

    def _next_weight(self, device: int) -> int:
        """The W with the most behind it, or -1."""
        most, code = 0, -1
        for stage in self.problem.stages[device]:
            weight = 4 * stage + W
            waiting = self.done[4 * stage + I] - self.done[weight]
            if waiting >= most > 0 or waiting > 0 == most:
                most, code = waiting, weight
        return code

    def _before_forward(self, options: list[tuple[float, float, int]]) -> float:
        """A place before every F and behind every B and I that comes before it."""
        keys = [key for key, _, code in options if code & 3 == F]
        return min(keys, default=0.0) - 1e-9

    def commit(self, device: int, start_s: float, code: int) -> list[int]:
        """Do an action; tell whose choice it may change."""
        problem, done = self.problem, self.done
        stage, kind = code >> 2, code & 3
        end_s = start_s + problem.duration_s[code]
        self.free_s[device] = end_s
        self.level[device] += problem.growth_bytes[code]
        self.rows[device].append(code)
        done[code] += 1
        if kind == I:
            done[4 * stage + B] += 1
        touched = [device]
        arrival_s = end_s + problem.send_s[code]
        if kind == F and stage + 1 < problem.num_stages:
            self.arrivals[code + 4].append(arrival_s)
            touched.append(problem.home[stage + 1])
        elif kind in (B, I) and stage > 0:
            self.arrivals[4 * stage - 4 + B].append(arrival_s)
            touched.append(problem.home[stage - 1])
        return touched


def ways_s(problem: OrderProblem) -> list[float]:
    """The shortest way from the start of an action to the end of the step.

    Args:
        problem: Times and homes.

    Returns:
        Per code, for one microbatch that never waits [s].
    """
    count, own_s = problem.num_stages, problem.duration_s
    ways = [0.0] * (4 * count)
    below_s = 0.0
    for stage in range(count):
        base = 4 * stage
        ways[base + W] = own_s[base + W]
        # The stages before need its gradient; B brings it after all of B.
        sent_s = problem.send_s[base + B] + below_s
        ways[base + B] = own_s[base + B] + sent_s
        ways[base + I] = own_s[base + I] + max(sent_s, own_s[base + W])
        below_s = ways[base + B]
        if problem.may_split(stage):
            below_s = min(below_s, ways[base + I])
    after_s = below_s
    for stage in reversed(range(count)):
        after_s += own_s[4 * stage + F] + problem.send_s[4 * stage + F]
        ways[4 * stage + F] = after_s
    return ways


def turn_s(problem: OrderProblem) -> float:
    """Work of the busiest device for one microbatch.

    Args:
        problem: Times and homes.

    Returns:
        F and B of its stages, B split where that is quicker [s].
    """
    own_s = problem.duration_s
    return max(
        sum(
            own_s[4 * s + F]
            + own_s[4 * s + B]
            + (min(problem.splitting_s(s), 0.0) if problem.may_split(s) else 0.0)
            for s in stages
        )
        for stages in problem.stages
    )
