"""Buffers at the boundaries of a stage, as PyTorch's pipeline stage holds them.

Before the first step it allocates, for each microbatch, one tensor to receive the
input into and one for the gradient of the output, and keeps them for good. What is
sent stays alive until the end of the step, because the runtime waits for its sends
only then. For one microbatch and a boundary of b bytes:

                           stage before           stage after
    on another device      output sent      b     input received         b
                           grad. received   b     gradient sent          b
    on the same device     gradient         b     output handed over     b

On the same device nothing is sent: the buffers give way to the very tensors that
are handed over, which then stay until the next step replaces them.

Known limitations: what is sent is counted from the start of the step, although it
adds up while the step goes on. A first layer that keeps its input keeps the very
buffer that it was received into, which is counted in both places.
"""


def communication_bytes(
    *,
    num_microbatches: int,
    input_bytes: int,
    output_bytes: int,
    input_is_local: bool = False,
    output_is_local: bool = False,
) -> int:
    """Buffers at the boundaries of a stage.

    Args:
        num_microbatches: Of one step.
        input_bytes: Taken for one microbatch; 0 on the first stage [bytes].
        output_bytes: Made for one microbatch; 0 on the last stage [bytes].
        input_is_local: Whether the stage before is on the same device.
        output_is_local: Whether the stage after is on the same device.

    Returns:
        The size of all buffers [bytes].
    """
    for_input = input_bytes * (1 if input_is_local else 2)
    for_output = output_bytes * (1 if output_is_local else 2)
    return num_microbatches * (for_input + for_output)
