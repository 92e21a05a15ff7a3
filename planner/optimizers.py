"""What an optimizer holds for each parameter.

Weights and gradients have the training dtype. In bfloat16 the optimizer also
keeps a master copy of the weights in float32, because a small learning rate
would round away in bfloat16; its states are in float32.

                  weight  gradient  master  states   in all
    adamw  fp32     4        4        -       8        16
    adamw  bf16     2        2        4       8        16
    sgd    fp32     4        4        -       -         8
    sgd    bf16     2        2        4       -         8
    adamw-bf16      2        2        -       4         8

Its step allocates nothing more in fp32. With a master copy it needs the gradient in
fp32 of the one parameter being stepped; afterwards that parameter has none. Without
one, it works on fp32 copies of weight, gradient and states, of a piece of the
parameter at a time.

Those without a choice of the user come in the order of what they change in training:
fp32 weights and states first, then weights that are rounded at random.
"""

from dataclasses import dataclass

from planner.errors import WishError


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSpec:
    """What an optimizer holds.

    Attributes:
        name: As the user writes it.
        title: As people write it.
        weight_bytes: Of the weight, per parameter [bytes].
        gradient_bytes: Of the gradient, per parameter [bytes].
        state_bytes: Of master weight and states, per parameter [bytes].
        step_bytes: While it is stepped, per parameter [bytes].
        step_parameters: How many are stepped at once; 0 for a whole tensor.
    """

    name: str
    title: str
    weight_bytes: int
    gradient_bytes: int
    state_bytes: int
    step_bytes: int = 0
    step_parameters: int = 0

    @property
    def bytes_per_parameter(self) -> int:
        """Weight, gradient and states together [bytes]."""
        return self.lasting_bytes + self.gradient_bytes

    @property
    def lasting_bytes(self) -> int:
        """Weight and states of a parameter, which outlast a step [bytes]."""
        return self.weight_bytes + self.state_bytes


_TITLES = {
    "adamw": "AdamW",
    "adamw-bf16": "AdamW in bf16",
    "sgd": "SGD",
}
_NUM_STATES = {"adamw": 2, "sgd": 0}
_ITEM_BYTES = {"float32": 4, "bfloat16": 2}
OPTIMIZERS: tuple[str, ...] = tuple(_TITLES)
# Elements that `adamw-bf16` steps at once, and what one takes meanwhile [bytes].
ROUNDED_CHUNK = 2**22
_ROUNDED_STEP_BYTES = 16


def optimizers_for(dtype: str) -> tuple[str, ...]:
    """The optimizers that can train weights of a dtype.

    Args:
        dtype: `float32` or `bfloat16`.

    Returns:
        Their names.
    """
    bf16 = dtype == "bfloat16"
    return tuple(name for name in OPTIMIZERS if bf16 or name != "adamw-bf16")


def automatic_optimizers(dtype: str) -> tuple[str, ...]:
    """What `auto` tries one after the other until something fits.

    Args:
        dtype: `float32` or `bfloat16`.

    Returns:
        Names, first what changes training least.
    """
    return tuple(name for name in optimizers_for(dtype) if name != "sgd")


def optimizer_spec(name: str, dtype: str) -> OptimizerSpec:
    """Look an optimizer up.

    Args:
        name: One of `OPTIMIZERS`, or `auto` for `adamw`.
        dtype: Of weights and gradients: `float32` or `bfloat16`.

    Returns:
        What it holds.

    Raises:
        WishError: There is no optimizer of that name, or not for that dtype.
    """
    name = "adamw" if name == "auto" else name
    if name not in _TITLES:
        msg = f"unknown optimizer '{name}'; there are {', '.join(OPTIMIZERS)}"
        raise WishError(msg)
    if name not in optimizers_for(dtype):
        msg = (
            f"the optimizer '{name}' trains bfloat16 weights, and these are {dtype}; "
            "take --optimizer adamw, or profile with --dtype bfloat16"
        )
        raise WishError(msg)
    item_bytes = _ITEM_BYTES[dtype]
    if name == "adamw-bf16":
        return OptimizerSpec(
            name=name,
            title=_TITLES[name],
            weight_bytes=item_bytes,
            gradient_bytes=item_bytes,
            state_bytes=2 * item_bytes,
            step_bytes=_ROUNDED_STEP_BYTES,
            step_parameters=ROUNDED_CHUNK,
        )
    master_bytes = 0 if dtype == "float32" else 4
    return OptimizerSpec(
        name=name,
        title=_TITLES[name],
        weight_bytes=item_bytes,
        gradient_bytes=item_bytes,
        state_bytes=master_bytes + 4 * _NUM_STATES[name],
        step_bytes=master_bytes,  # the gradient is as long as the copy
    )
