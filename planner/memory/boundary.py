"""What lies at the boundary between two stages, and to which of them it counts.

Towards another device: before the first step PyTorch's stage allocates, for each
microbatch, one tensor to receive the input into and one for the gradient of the
output, and keeps them for good. What is sent, an output or the gradient of an input,
stays from when it is made to the end of the step, because the runtime waits for its
sends only then.

On the same device nothing is sent or allocated: the output stays from F of the
stage that made it to that stage's B or I, and the gradient that comes back from B or
I of the stage after to the same moment. (PyTorch by itself keeps both for all
microbatches until the next step; the engine lets go of them.)

    one microbatch         stage before                stage after
    another device         gradient, always            input, always
                           output, from F on           its gradient, from B or I on
    the same device        output, F to B or I         -
                           gradient, next B to B or I

So the first layer of a stage neither brings its input nor keeps it, and the last one
does not bring the gradient of its output: they are there anyway. What W needs of them
outlives the boundary on the same device, and is counted with the layer there.

Known limitations: where a boundary carries more than the hidden state, only what the
profile says of the layer's main input is known to be kept.
"""

from dataclasses import replace

from planner.model_profile import LayerProfile


def receive_buffer_bytes(
    *, num_microbatches: int, input_bytes: int, output_bytes: int
) -> int:
    """Buffers that a stage receives into from other devices.

    Args:
        num_microbatches: Of one step.
        input_bytes: Received for one microbatch; 0 on the first stage [bytes].
        output_bytes: Sent for one microbatch, as large as its gradient that comes
            back; 0 on the last stage [bytes].

    Returns:
        The size of all buffers [bytes].
    """
    return num_microbatches * (input_bytes + output_bytes)


def begins_stage(layer: LayerProfile, input_bytes: int) -> LayerProfile:
    """A layer as the first one of a stage, without what is at the boundary.

    Args:
        layer: The layer by itself.
        input_bytes: Taken for one microbatch; 0 on the first stage [bytes].

    Returns:
        What it takes beside its input.
    """
    own = min(layer.kept_input_bytes, input_bytes)
    return replace(
        _without(layer, own),
        activation_bytes=layer.activation_bytes - min(own, layer.activation_bytes),
        kept_input_bytes=0,
        recompute_activation_bytes=max(
            layer.recompute_activation_bytes - input_bytes, 0
        ),
        forward_peak_bytes=max(layer.forward_peak_bytes - input_bytes, 0),
    )


def ends_stage(layer: LayerProfile, output_bytes: int) -> LayerProfile:
    """A layer as the last one of a stage, without what is at the boundary.

    Args:
        layer: The layer by itself.
        output_bytes: Made for one microbatch; 0 on the last stage [bytes].

    Returns:
        What it takes beside the gradient of its output.
    """
    own = min(layer.kept_output_grad_bytes, output_bytes)
    return replace(
        _without(layer, own),
        backward_peak_bytes=max(layer.backward_peak_bytes - output_bytes, 0),
        first_backward_peak_bytes=max(
            layer.first_backward_peak_bytes - output_bytes, 0
        ),
        input_grad_peak_bytes=max(layer.input_grad_peak_bytes - output_bytes, 0),
    )


def _without(layer: LayerProfile, num_bytes: int) -> LayerProfile:
    """A layer that keeps less of what it keeps through I and W."""
    held = max(layer.weight_activation_bytes - num_bytes, 0)
    after_input = max(layer.input_grad_activation_bytes - num_bytes, 0)
    return replace(
        layer,
        input_grad_activation_bytes=after_input,
        weight_activation_bytes=held,
        weight_grad_activation_bytes=min(layer.weight_grad_activation_bytes, held),
    )
