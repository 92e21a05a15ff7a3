"""The second artifact: which layers on which card, in which order, and why.

The plan carries the order of actions itself. The simulator judged exactly that
order and the runtime runs exactly that order.
"""

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Literal

from planner import artifact
from planner.artifact import NonNegativeFloat, NonNegativeInt, PositiveInt
from planner.model_profile import ModelInfo

# Step times that differ by a smaller share are called equal.
CLOSE = 0.01

# What an action such as `2F0` begins with.
_STAGE = re.compile(r"\d+")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryBreakdown:
    """What occupies one card at its fullest moment, item by item [bytes].

    Attributes:
        weights: Parameters in the training dtype.
        gradients: Gradients of the parameters.
        optimizer: States of the optimizer and master weights.
        activations: Kept by all microbatches in flight.
        workspace: Transient inside the layer that peaks highest: its temporaries,
            logits and their gradient, recomputed activations.
        communication: Buffers at the boundaries of the stage.
        overhead: The reserve: context, allocator, other programs.
        total: Sum of the items above.
    """

    weights: NonNegativeInt = 0
    gradients: NonNegativeInt = 0
    optimizer: NonNegativeInt = 0
    activations: NonNegativeInt = 0
    workspace: NonNegativeInt = 0
    communication: NonNegativeInt = 0
    overhead: NonNegativeInt = 0
    total: NonNegativeInt = 0

    def __post_init__(self) -> None:
        if self.total != sum(self.items().values()):
            msg = f"memory total {self.total} is not {sum(self.items().values())}"
            raise ValueError(msg)

    def items(self) -> dict[str, int]:
        """The items without the total.

        Returns:
            Item name to size [bytes], in the order they are drawn.
        """
        return {
            "weights": self.weights,
            "gradients": self.gradients,
            "optimizer": self.optimizer,
            "activations": self.activations,
            "workspace": self.workspace,
            "communication": self.communication,
            "overhead": self.overhead,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePrediction:
    """What one stage is expected to need and take.

    Attributes:
        memory_bytes: At its fullest moment, by item [bytes].
        capacity_bytes: Of its card, reserve included [bytes].
        forward_s: F of one microbatch [s].
        backward_s: B of one microbatch, recompute included [s].
        input_grad_s: I of one microbatch, recompute included [s].
        weight_grad_s: W of one microbatch [s].
        send_forward_s: Transfer of one microbatch's output to the next stage,
            0 on the last [s].
        send_backward_s: Transfer of its gradient to the stage before, 0 on the
            first [s].
        busy_fraction: Share of the makespan in which it computes.
    """

    memory_bytes: MemoryBreakdown = MemoryBreakdown()
    capacity_bytes: NonNegativeInt = 0
    forward_s: NonNegativeFloat = 0.0
    backward_s: NonNegativeFloat = 0.0
    input_grad_s: NonNegativeFloat = 0.0
    weight_grad_s: NonNegativeFloat = 0.0
    send_forward_s: NonNegativeFloat = 0.0
    send_backward_s: NonNegativeFloat = 0.0
    busy_fraction: NonNegativeFloat = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class StagePlan:
    """A contiguous run of layers on one device.

    Attributes:
        index: Stage number, from 0.
        device: Name of the card, such as `rtx3090:0` or `cpu:0`.
        first_layer: Index of its first layer in the profile.
        last_layer: Index of its last layer in the profile, inclusive.
        layers: Names of its layers, in order.
        recompute: Names of those that are recomputed in backward.
        predicted: What it is expected to need and take.
    """

    index: NonNegativeInt
    device: str
    first_layer: NonNegativeInt
    last_layer: NonNegativeInt
    layers: tuple[str, ...]
    recompute: tuple[str, ...] = ()
    predicted: StagePrediction = StagePrediction()

    def __post_init__(self) -> None:
        if len(self.layers) != self.last_layer - self.first_layer + 1:
            msg = (
                f"stage {self.index} names {len(self.layers)} layers but runs from "
                f"{self.first_layer} to {self.last_layer}"
            )
            raise ValueError(msg)
        if strangers := set(self.recompute) - set(self.layers):
            msg = f"stage {self.index} recomputes {sorted(strangers)}, not its own"
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class CardPlan:
    """What the stages of one card come to together.

    Attributes:
        index: Of the device, a row of actions, from 0.
        device: Name of the card.
        stages: Indices of its stages, ascending.
        memory_bytes: At its fullest moment, by item [bytes].
        capacity_bytes: Of the card, reserve included; 0 if not known [bytes].
        busy_fraction: Share of the makespan in which it computes.
    """

    index: int
    device: str
    stages: tuple[int, ...]
    memory_bytes: MemoryBreakdown
    capacity_bytes: int
    busy_fraction: float

    @property
    def title(self) -> str:
        """`stage 1`, or `stages 0, 7`."""
        word = "stage" if len(self.stages) == 1 else "stages"
        return f"{word} {', '.join(map(str, self.stages))}"

    @property
    def own_bytes(self) -> int:
        """Predicted live bytes without the reserve: what a run's peak is held to."""
        return self.memory_bytes.total - self.memory_bytes.overhead

    @property
    def fits(self) -> bool:
        """Whether it stays within its capacity; true if that is not known."""
        return not self.capacity_bytes or self.excess_bytes <= 0

    @property
    def excess_bytes(self) -> int:
        """By how much it exceeds its capacity; below 0 where room is left [bytes]."""
        return self.memory_bytes.total - self.capacity_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkPlan:
    """What is taken to join one stage to the next.

    Attributes:
        name: As a user writes it, such as `pcie4x8` or `12GB/s,10us`.
        bandwidth: In each direction; None where only latency counts [bytes/s].
        latency_s: Of one transfer [s].
        origin: `given` by the user, `measured`, or `assumed` for want of both;
            `none` between two stages of one device.
    """

    name: str
    bandwidth: NonNegativeFloat | None
    latency_s: NonNegativeFloat
    origin: Literal["given", "measured", "assumed", "none"]


SAME_DEVICE = LinkPlan(name="", bandwidth=None, latency_s=0.0, origin="none")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulePlan:
    """The order of actions on every device.

    Attributes:
        name: Such as `1f1b`, or `planned` for an order of our own.
        num_microbatches: Of one step.
        microbatch_size: Sequences of one microbatch.
        actions: Per device, such as `("0F0", "0F1", "0B0", "0B1")`.
    """

    name: str
    num_microbatches: PositiveInt
    microbatch_size: PositiveInt
    actions: tuple[tuple[str, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerPlan:
    """Which optimizer, and what it holds.

    Attributes:
        name: Such as `adamw`.
        bytes_per_parameter: Weight, gradient and states together [bytes].
        passed_over: Those that change training less, with which nothing fits.
    """

    name: str
    bytes_per_parameter: PositiveInt
    passed_over: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPrediction:
    """What one step is expected to take.

    Attributes:
        step_s: Makespan, exchange of gradients, and optimizer [s].
        makespan_s: First F to last B [s].
        tie_s: Summing the gradient of a tied parameter over its devices [s].
        reduce_s: Summing all gradients over the copies of the pipeline [s].
        optimizer_s: Optimizer step of the slowest stage [s].
        bubble_fraction: 1 - busy / (devices * makespan).
        recompute_fraction: Share of the makespan in which cards run F again.
        tokens_per_s: Tokens of the global batch per step time [1/s].
    """

    step_s: NonNegativeFloat
    makespan_s: NonNegativeFloat
    tie_s: NonNegativeFloat = 0.0
    reduce_s: NonNegativeFloat = 0.0
    optimizer_s: NonNegativeFloat = 0.0
    bubble_fraction: NonNegativeFloat = 0.0
    recompute_fraction: NonNegativeFloat = 0.0
    tokens_per_s: NonNegativeFloat = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FreeCut:
    """The quickest plan that was found without the cut that the user wished.

    Attributes:
        layers_per_stage: How many layers each stage holds.
        schedule: Its name.
        microbatch_size: Sequences of one microbatch.
        step_s: Simulated step time [s].
    """

    layers_per_stage: tuple[int, ...]
    schedule: str
    microbatch_size: PositiveInt
    step_s: NonNegativeFloat


@dataclass(frozen=True, slots=True, kw_only=True)
class SolverReport:
    """How sure we are.

    Attributes:
        status: `optimal` is proven in the simulator's terms, `feasible` is not.
        bound_s: No plan of the searched space has a smaller step time [s].
        gap: (step_s - bound_s) / step_s.
        candidates: How many plans were simulated.
        solve_s: Time of the search [s].
        free_cut: What the wished cut is to be compared with; None if none was
            wished.
    """

    status: Literal["optimal", "feasible"]
    bound_s: NonNegativeFloat
    gap: NonNegativeFloat
    candidates: NonNegativeInt
    solve_s: NonNegativeFloat
    free_cut: FreeCut | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Baseline:
    """The same work as people do it today. What older plans do not say is empty.

    Attributes:
        name: Such as `even layers`.
        used_by: Who does so, such as `DeepSpeed`.
        layers_per_stage: How many layers each stage holds; empty where every card
            works on all of them.
        schedule: Of a pipeline: its name.
        microbatch_size: Sequences of one microbatch; 0 is not known.
        recompute: `full` if every block is recomputed, else `none`.
        step_s: Simulated step time, whether it fits or not [s].
        fits: Whether every card has room.
        missing_bytes: What the card lacks that lacks most; 0 if it fits [bytes].
        card: The card that lacks most, or has the least left.
        judgement: One sentence.
    """

    name: str
    used_by: str = ""
    layers_per_stage: tuple[int, ...]
    schedule: str = ""
    microbatch_size: NonNegativeInt = 0
    recompute: Literal["", "none", "full"] = ""
    step_s: NonNegativeFloat
    fits: bool
    missing_bytes: NonNegativeInt = 0
    card: str = ""
    judgement: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Alternative:
    """The best plan that was found in another way of the searched space.

    Attributes:
        schedule: Its name.
        num_copies: Of the pipeline.
        stages_per_device: How many stages each card works on.
        microbatch_size: Sequences of one microbatch.
        layers_per_stage: How many layers each stage holds.
        num_recomputed: How many layers are recomputed in all.
        peak_bytes: Of the card that needs most [bytes].
        step_s: Simulated step time [s].
    """

    schedule: str
    num_copies: PositiveInt = 1
    stages_per_device: PositiveInt = 1
    microbatch_size: PositiveInt
    layers_per_stage: tuple[int, ...]
    num_recomputed: NonNegativeInt = 0
    peak_bytes: NonNegativeInt
    step_s: NonNegativeFloat


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRef:
    """Which profile a plan was made from.

    Attributes:
        path: As the user gave it.
        sha256: Of the file's bytes.
    """

    path: str
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One way to train one model on some cards.

    Attributes:
        model: Which model.
        profile: Where the costs came from.
        device_type: `cuda` or `cpu`: where it runs.
        dtype: Of weights and activations.
        attention: Attention implementation.
        trust_remote_code: Whether code that the model brings ran for its profile; a
            run asks again.
        seq_len: Tokens of one sequence.
        global_batch_size: Sequences of one step.
        stages: First to last; together every layer exactly once.
        links: From each stage to the next; empty if not known.
        schedule: The order of actions.
        optimizer: Which optimizer.
        predicted: What a step is expected to take.
        solver: How sure we are.
        baselines: What others would do.
        alternatives: What else was found, the quickest first.
        given_cards: Names of the user's cards in the order given, on CUDA that of
            the machine; empty if not known.
        copies: Of every further copy of the pipeline, the cards that its devices
            are, in the order of the rows of actions.
        copies_link: What their gradients are summed over; None without copies.
    """

    schema_version: int = artifact.SCHEMA_VERSION
    created: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    model: ModelInfo
    profile: ProfileRef
    device_type: Literal["cuda", "cpu"] = "cuda"
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    attention: str = "sdpa"
    trust_remote_code: bool = False
    seq_len: PositiveInt
    global_batch_size: PositiveInt
    stages: tuple[StagePlan, ...]
    links: tuple[LinkPlan, ...] = ()
    schedule: SchedulePlan
    optimizer: OptimizerPlan
    predicted: PlanPrediction
    solver: SolverReport
    baselines: tuple[Baseline, ...] = ()
    alternatives: tuple[Alternative, ...] = ()
    given_cards: tuple[str, ...] = ()
    copies: tuple[tuple[str, ...], ...] = ()
    copies_link: LinkPlan | None = None

    def __post_init__(self) -> None:
        if not self.stages:
            msg = "stages is empty"
            raise ValueError(msg)
        if self.stages[0].first_layer != 0:
            msg = f"stage 0 begins at layer {self.stages[0].first_layer}, not 0"
            raise ValueError(msg)
        for index, stage in enumerate(self.stages):
            if stage.index != index:
                msg = f"stages[{index}] has index {stage.index}"
                raise ValueError(msg)
        for before, after in pairwise(self.stages):
            if after.first_layer != before.last_layer + 1:
                msg = (
                    f"stage {before.index} ends at layer {before.last_layer} but "
                    f"stage {after.index} begins at layer {after.first_layer}"
                )
                raise ValueError(msg)
        for number, cards in enumerate(self.copies, start=1):
            if len(cards) != self.num_devices:
                msg = (
                    f"copy {number} has {len(cards)} cards, but the schedule "
                    f"{self.num_devices} rows of actions"
                )
                raise ValueError(msg)
        batch = self.schedule.num_microbatches * self.schedule.microbatch_size
        batch *= self.num_copies
        if batch != self.global_batch_size:
            msg = (
                f"{self.schedule.num_microbatches} microbatches of "
                f"{self.schedule.microbatch_size}{self._times_copies} are {batch} "
                f"sequences, "
                f"not global_batch_size {self.global_batch_size}"
            )
            raise ValueError(msg)

    def trusting(self, trust_remote_code: bool) -> "Plan":
        """The plan for somebody who may not want to run code of its model.

        A file that comes from elsewhere cannot give that leave.

        Args:
            trust_remote_code: Whether it may run.

        Returns:
            The same plan, or one that runs none.
        """
        return replace(
            self, trust_remote_code=self.trust_remote_code and trust_remote_code
        )

    @property
    def num_stages(self) -> int:
        """How many stages there are."""
        return len(self.stages)

    @property
    def num_devices(self) -> int:
        """How many devices a pipeline has: one row of actions each."""
        return len(self.schedule.actions) or len(self.stages)

    @property
    def num_copies(self) -> int:
        """How many pipelines there are, each with its share of every step."""
        return 1 + len(self.copies)

    @property
    def num_processes(self) -> int:
        """How many devices all copies have together."""
        return self.num_copies * self.num_devices

    @property
    def used_cards(self) -> tuple[str, ...]:
        """The cards of all copies, copy by copy, in the order of the rows."""
        own = tuple(card.device for card in self.cards)
        return own + tuple(name for cards in self.copies for name in cards)

    @property
    def num_cards_text(self) -> str:
        """All cards as people count them."""
        return "1 card" if self.num_processes == 1 else f"{self.num_processes} cards"

    @property
    def _times_copies(self) -> str:
        return f" in each of {self.num_copies} copies" if self.copies else ""

    @property
    def device_of_stage(self) -> tuple[int, ...]:
        """Which device, a row of actions, works on each stage; without rows its own."""
        home: dict[int, int] = {}
        for device, row in enumerate(self.schedule.actions):
            # Whether the actions make sense is asked by `check_schedule`.
            stages = {match[0] for text in row if (match := _STAGE.match(text))}
            home.update((int(stage), device) for stage in stages)
        return tuple(home.get(stage.index, stage.index) for stage in self.stages)

    def stages_of_device(self, device: int) -> tuple[StagePlan, ...]:
        """The stages that one device works on.

        Args:
            device: Row of actions, from 0.

        Returns:
            In order of the model; several under interleaved schedules.
        """
        homes = self.device_of_stage
        return tuple(s for s in self.stages if homes[s.index] == device)

    @property
    def cards(self) -> tuple[CardPlan, ...]:
        """What each device has to hold and do, in the order of the rows of actions."""
        together: dict[int, list[StagePlan]] = {}
        for stage, device in zip(self.stages, self.device_of_stage, strict=True):
            together.setdefault(device, []).append(stage)
        return tuple(_card(index, together[index]) for index in sorted(together))

    @property
    def card_of_stage(self) -> tuple[CardPlan, ...]:
        """The card that works on each stage."""
        cards = {stage: card for card in self.cards for stage in card.stages}
        return tuple(cards[stage.index] for stage in self.stages)

    @property
    def quicker_baselines(self) -> tuple[Baseline, ...]:
        """Other ways that fit and are clearly quicker, the quickest first."""
        limit_s = self.predicted.step_s * (1 - CLOSE)
        found = [b for b in self.baselines if b.fits and 0 < b.step_s < limit_s]
        return tuple(sorted(found, key=lambda baseline: baseline.step_s))

    @property
    def layer_names(self) -> tuple[str, ...]:
        """All layers, first to last."""
        return tuple(name for stage in self.stages for name in stage.layers)


def _card(index: int, stages: list[StagePlan]) -> CardPlan:
    items: Counter[str] = Counter()
    for stage in stages:
        items.update(stage.predicted.memory_bytes.items())
    return CardPlan(
        index=index,
        device=stages[0].device,
        stages=tuple(stage.index for stage in stages),
        memory_bytes=MemoryBreakdown(**items, total=sum(items.values())),
        capacity_bytes=stages[0].predicted.capacity_bytes,
        busy_fraction=sum(stage.predicted.busy_fraction for stage in stages),
    )


def load_plan(path: Path) -> Plan:
    """Read a plan.

    Args:
        path: The JSON file.

    Returns:
        The plan.

    Raises:
        ArtifactError: It cannot be read or a field is wrong (named).
    """
    return artifact.load(path, Plan)
