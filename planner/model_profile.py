"""The first artifact: what every layer of a model costs.

A layer is the smallest thing never cut: the embedding, each block, and the
norm + head. Fields that are absent count as 0, so a profile can be written by
hand.

What the memory figures of a layer mean, for one microbatch; a level is the sum of
live tensor bytes. Kept is:

    activation_bytes      from F to B or I: the layer's input if autograd keeps it,
                          the output only if the layer itself keeps it
    kept_input_bytes      of activation_bytes, the layer's input
    kept_output_grad_bytes         of weight_activation_bytes, the output's gradient
    recompute_activation_bytes     as activation_bytes when the layer is recomputed
    input_grad_activation_bytes    from the layer's part of I to the end of the
                          stage's: I frees nothing before, and adds gradients for W
    weight_activation_bytes        from I to W, recomputed or not: all of it, only
                          what lies between a loss and the last parameters is gone
    weight_grad_activation_bytes   from the layer's part of W to the end of the
                          stage's: what only I had needed

and the highest level is, during

    forward_peak_bytes    F, above what the layers before keep; input and output are
                          included
    backward_peak_bytes   B, above what this layer and those before keep; gradients
                          of output and input are included, the accumulated ones of
                          parameters are not
    first_backward_peak_bytes      the first B of a step; the gradients that it makes
                          are included
    input_grad_peak_bytes          I, above the same as B
    weight_grad_peak_bytes         W, above what this layer and those after keep from
                          I to W, and those before until the end of W

How they add up in a stage of several layers: `stage_levels`.

Known limitations: times are of one layer alone in its process; on a CPU as many
processes compute meanwhile as `ProfiledDevice.num_processes` says.
"""

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from planner import artifact
from planner.artifact import NonNegativeFloat, NonNegativeInt, PositiveInt
from planner.errors import WishError


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerProfile:
    """Cost of one layer for one microbatch on one device.

    Attributes:
        name: Unique in the model, such as `model.layers.3`.
        kind: What it is, such as `embedding`, `LlamaDecoderLayer` or `head`.
        num_parameters: Held by a stage that has only this layer (ties included).
        num_tied_parameters: Of those, shared with a layer named in `ties`.
        forward_flops: Of F; a multiply-add is two [FLOP].
        forward_s: Time of F [s].
        backward_s: Time of B, without recompute [s].
        input_grad_s: Time of I, the part of B for the input [s].
        weight_grad_s: Time of W, the part of B for the weights [s].
        recompute_s: What recompute adds to B; 0 counts as `forward_s` [s].
        forward_spread: Interquartile range of F's samples over their median.
        backward_spread: The same of B's samples; both are 0 if computed.
        activation_bytes: Kept from F to B without recompute [bytes].
        recompute_activation_bytes: Kept from F to B with recompute [bytes].
        kept_input_bytes: Of `activation_bytes`, the layer's input [bytes].
        kept_output_grad_bytes: Of `weight_activation_bytes`, the gradient of the
            layer's output [bytes].
        output_bytes: Sent to the next stage if the model is cut here [bytes].
        forward_peak_bytes: Highest level during F, as defined above [bytes].
        backward_peak_bytes: Highest level during B, as defined above [bytes].
        input_grad_activation_bytes: Kept until the stage's I ends [bytes].
        weight_activation_bytes: Kept from I to W; 0 is not known [bytes].
        weight_grad_activation_bytes: Kept until the stage's W ends [bytes].
        first_backward_peak_bytes: Highest level during the first B of a step; 0 is
            not known [bytes].
        input_grad_peak_bytes: Highest level during I; 0 is not known [bytes].
        weight_grad_peak_bytes: Highest level during W; 0 is not known [bytes].
        largest_parameter: Elements of its largest parameter.
    """

    name: str
    kind: str = "layer"
    num_parameters: NonNegativeInt = 0
    num_tied_parameters: NonNegativeInt = 0
    forward_flops: NonNegativeInt = 0
    forward_s: NonNegativeFloat = 0.0
    backward_s: NonNegativeFloat = 0.0
    input_grad_s: NonNegativeFloat = 0.0
    weight_grad_s: NonNegativeFloat = 0.0
    recompute_s: NonNegativeFloat = 0.0
    forward_spread: NonNegativeFloat = 0.0
    backward_spread: NonNegativeFloat = 0.0
    activation_bytes: NonNegativeInt = 0
    recompute_activation_bytes: NonNegativeInt = 0
    kept_input_bytes: NonNegativeInt = 0
    kept_output_grad_bytes: NonNegativeInt = 0
    output_bytes: NonNegativeInt = 0
    forward_peak_bytes: NonNegativeInt = 0
    backward_peak_bytes: NonNegativeInt = 0
    input_grad_activation_bytes: NonNegativeInt = 0
    weight_activation_bytes: NonNegativeInt = 0
    weight_grad_activation_bytes: NonNegativeInt = 0
    first_backward_peak_bytes: NonNegativeInt = 0
    input_grad_peak_bytes: NonNegativeInt = 0
    weight_grad_peak_bytes: NonNegativeInt = 0
    largest_parameter: NonNegativeInt = 0

    @property
    def again_s(self) -> float:
        """Time that recompute adds to B: as long as F if nobody measured it [s]."""
        return self.recompute_s or self.forward_s

    def __post_init__(self) -> None:
        if self.num_tied_parameters > self.num_parameters:
            msg = (
                f"layer '{self.name}': num_tied_parameters {self.num_tied_parameters} "
                f"is more than num_parameters {self.num_parameters}"
            )
            raise ValueError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelInfo:
    """Which model it is.

    Attributes:
        id: Hub id, folder or `package.module:factory`, as the user gave it.
        architecture: Class name, such as `LlamaForCausalLM`.
        revision: Commit of the hub, if any.
        num_parameters: In all, tied ones counted once.
    """

    id: str = ""
    architecture: str = ""
    revision: str | None = None
    num_parameters: NonNegativeInt = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Efficiency:
    """What large operators reach of a card's figures, in a computed profile.

    Attributes:
        matrix: Share of the matrix units' rate.
        memory: Share of the memory bandwidth.
        launch_s: Shortest time of any operator [s].
    """

    matrix: NonNegativeFloat = 0.0
    memory: NonNegativeFloat = 0.0
    launch_s: NonNegativeFloat = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledDevice:
    """What the profile was measured on or computed for.

    Attributes:
        name: A card of the catalogue, `cpu`, or what CUDA calls the card.
        kind: `measured` on the device or `analytic`, computed without it.
        type: `cuda` or `cpu`: where a plan made from it runs.
        memory_bytes: Of one card; on a CPU, of the whole host [bytes].
        optimizer_s_per_parameter: Time of an optimizer step by optimizer [s].
        step_overhead_s: Fixed time of one action outside its layers [s].
        unpredicted_bytes: By how much a run's peak was above its prediction; kept
            free on every card besides the reserve [bytes].
        efficiency: What the times of a computed profile rest on.
        num_processes: That computed at once while layers were timed on a CPU.
    """

    name: str = ""
    kind: Literal["measured", "analytic"] = "analytic"
    type: Literal["cuda", "cpu"] = "cuda"
    memory_bytes: NonNegativeInt = 0
    optimizer_s_per_parameter: dict[str, NonNegativeFloat] = field(default_factory=dict)
    step_overhead_s: NonNegativeFloat = 0.0
    unpredicted_bytes: NonNegativeInt = 0
    efficiency: Efficiency | None = None
    num_processes: PositiveInt = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredLink:
    """One ordered pair of devices, measured.

    Attributes:
        source: Position of the sending device.
        target: Position of the receiving device.
        bandwidth: With nothing going the other way [bytes/s].
        duplex_bandwidth: While as much goes the other way [bytes/s].
        latency_s: Of the smallest transfer [s].
    """

    source: NonNegativeInt
    target: NonNegativeInt
    bandwidth: NonNegativeFloat
    duplex_bandwidth: NonNegativeFloat
    latency_s: NonNegativeFloat


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfiledCluster:
    """The devices of one machine and what joins them.

    Attributes:
        devices: Their names, by position.
        backend: Of the transfers: `nccl` or `gloo`.
        links: Every ordered pair once.
    """

    devices: tuple[str, ...]
    backend: Literal["nccl", "gloo"]
    links: tuple[MeasuredLink, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """What every layer of one model costs, in order.

    Attributes:
        layers: Costs at `microbatch_size`, first to last.
        microbatches: Costs at further microbatch sizes, by size as text.
        ties: Pairs of layer names that share parameters.
        uncuttable: Pairs (first, last) of layer names never to be parted.
        seq_len: Tokens of one sequence.
        microbatch_size: Sequences of one microbatch.
        dtype: Of weights and activations, such as `bfloat16`.
        attention: Attention implementation that was profiled.
        versions: Of planner, torch and transformers.
        created: ISO date and time.
        cluster: The links of a machine, where they were measured.
        calibrated_by: Run directory whose measurements its times were scaled by;
            empty if they are as they were profiled.
    """

    schema_version: int = artifact.SCHEMA_VERSION
    created: str = ""
    versions: dict[str, str] = field(default_factory=dict)
    model: ModelInfo = ModelInfo()
    device: ProfiledDevice = ProfiledDevice()
    dtype: Literal["float32", "bfloat16"] = "bfloat16"
    attention: str = "sdpa"
    trust_remote_code: bool = False
    seq_len: PositiveInt = 1
    microbatch_size: PositiveInt = 1
    microbatches: dict[str, tuple[LayerProfile, ...]] = field(default_factory=dict)
    layers: tuple[LayerProfile, ...]
    ties: tuple[tuple[str, str], ...] = ()
    uncuttable: tuple[tuple[str, str], ...] = ()
    cluster: ProfiledCluster | None = None
    calibrated_by: str = ""

    def __post_init__(self) -> None:
        names = [layer.name for layer in self.layers]
        if not names:
            msg = "layers is empty"
            raise ValueError(msg)
        if twice := {name for name in names if names.count(name) > 1}:
            msg = f"layers has the same name twice: {', '.join(sorted(twice))}"
            raise ValueError(msg)
        for size, layers in self.microbatches.items():
            if not size.isdecimal() or int(size) < 1:
                msg = f"microbatches has the size '{size}', not a whole number above 0"
                raise ValueError(msg)
            if [layer.name for layer in layers] != names:
                msg = f"microbatches['{size}'] does not name the same layers as layers"
                raise ValueError(msg)
        for key, pairs in (("ties", self.ties), ("uncuttable", self.uncuttable)):
            for name in (name for pair in pairs for name in pair):
                if name not in names:
                    msg = f"{key} names '{name}', which is not in layers"
                    raise ValueError(msg)

    @property
    def microbatch_sizes(self) -> tuple[int, ...]:
        """All profiled microbatch sizes, ascending."""
        return tuple(sorted({self.microbatch_size, *map(int, self.microbatches)}))

    def layers_at(self, microbatch_size: int) -> tuple[LayerProfile, ...]:
        """Costs at one microbatch size.

        Args:
            microbatch_size: Sequences of one microbatch.

        Returns:
            One entry a layer, first to last.

        Raises:
            WishError: That size was not profiled.
        """
        if microbatch_size == self.microbatch_size:
            return self.layers
        try:
            return self.microbatches[str(microbatch_size)]
        except KeyError:
            sizes = ", ".join(map(str, self.microbatch_sizes))
            msg = (
                f"the profile has no microbatch size {microbatch_size}, only {sizes}; "
                f"profile again with --microbatch-size {microbatch_size}"
            )
            raise WishError(msg) from None

    def index_of(self, name: str) -> int:
        """Position of a layer.

        Args:
            name: The layer's name.

        Returns:
            Its index in `layers`.
        """
        return [layer.name for layer in self.layers].index(name)

    def legal_cuts(self) -> tuple[bool, ...]:
        """Where the model may be cut.

        Returns:
            One flag per gap: entry i tells whether layers i and i + 1 may part.
        """
        legal = [True] * (len(self.layers) - 1)
        for first, last in self.uncuttable:
            for gap in range(self.index_of(first), self.index_of(last)):
                legal[gap] = False
        return tuple(legal)


def load_profile(path: Path) -> ModelProfile:
    """Read a profile.

    Args:
        path: The JSON file.

    Returns:
        The profile.

    Raises:
        ArtifactError: It cannot be read or a field is wrong (named).
    """
    return artifact.load(path, ModelProfile)


def sha256_of(path: Path) -> str:
    """Fingerprint of a file, to tell later whether it is still the same.

    Args:
        path: The file.

    Returns:
        SHA-256 of its bytes in hexadecimal.
    """
    return hashlib.sha256(path.read_bytes()).hexdigest()
