"""Buffers at the boundary between two stages.

Towards another device: before the first step PyTorch's stage allocates, for each
microbatch, one tensor to receive the input into and one for the gradient of the
output, and keeps them for good. What is sent stays alive until the end of the step,
because the runtime waits for its sends only then.

On the same device nothing is sent or allocated: the output stays from F of the
stage that made it to that stage's B or I, and the gradient that comes back from B or
I of the stage after to the same moment. (PyTorch by itself keeps both for all
microbatches until the next step; the engine lets go of them.)

    one microbatch         stage before                stage after
    another device         output, gradient, always    input, gradient, always
    the same device        output, F to B or I         -
                           gradient, next B to B or I

Known limitations: what is sent is counted from the start of the step, although it
adds up while the step goes on. A first layer that keeps its input keeps the very
tensor that came over the boundary, which is counted in both places.
"""


def communication_bytes(
    *, num_microbatches: int, input_bytes: int, output_bytes: int
) -> int:
    """Buffers at the boundaries of a stage towards other devices.

    Args:
        num_microbatches: Of one step.
        input_bytes: Received for one microbatch; 0 on the first stage [bytes].
        output_bytes: Sent for one microbatch; 0 on the last stage [bytes].

    Returns:
        The size of all buffers [bytes].
    """
    return 2 * num_microbatches * (input_bytes + output_bytes)
