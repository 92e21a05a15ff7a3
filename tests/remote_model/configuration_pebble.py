"""Settings of Pebble, a small language model that brings its own code."""

from transformers import PretrainedConfig


class PebbleConfig(PretrainedConfig):
    """Sizes, and how the gate of the experts behaves."""

    model_type = "pebble"

    def __init__(
        self,
        vocab_size=256,
        hidden_size=32,
        expert_size=16,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_experts=4,
        num_selected=2,
        max_position_embeddings=128,
        gate_noise=1.0,
        balance_loss_weight=0.01,
        gradient_checkpointing=False,
        initializer_range=0.1,
        **others,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.expert_size = expert_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        self.num_experts = num_experts
        self.num_selected = num_selected
        self.max_position_embeddings = max_position_embeddings
        self.gate_noise = gate_noise
        self.balance_loss_weight = balance_loss_weight
        self.gradient_checkpointing = gradient_checkpointing
        self.initializer_range = initializer_range
        super().__init__(**others)
