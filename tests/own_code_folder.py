"""A model folder whose code is its own, without a mask and without weights."""

import json

_REMOTE_CONFIG = """
from transformers import PretrainedConfig


class OwnConfig(PretrainedConfig):
    model_type = "own_code_of_check"

    def __init__(
        self,
        vocab_size=32000,
        hidden_size=1024,
        num_hidden_layers=24,
        num_attention_heads=16,
        **kwargs,
    ):
        self.vocab_size = vocab_size
        self.hidden_size = hidden_size
        self.num_hidden_layers = num_hidden_layers
        self.num_attention_heads = num_attention_heads
        super().__init__(**kwargs)
"""

_REMOTE_MODEL = """
import torch
from transformers import PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from .configuration_own import OwnConfig


class Block(torch.nn.Module):
    def __init__(self, config):
        super().__init__()
        self.inner = torch.nn.Linear(config.hidden_size, config.hidden_size)
        self.scale = config.residual_scale

    def forward(self, hidden):
        return (hidden + self.scale * torch.tanh(self.inner(hidden)), None)


class OwnModel(PreTrainedModel):
    config_class = OwnConfig

    def __init__(self, config):
        super().__init__(config)
        self.embed = torch.nn.Embedding(config.vocab_size, config.hidden_size)
        count = config.num_hidden_layers
        self.layers = torch.nn.ModuleList(Block(config) for _ in range(count))
        self.head = torch.nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def forward(self, input_ids, labels=None, use_cache=None):
        hidden = self.embed(input_ids)
        for layer in self.layers:
            hidden = layer(hidden)[0]
        return CausalLMOutput(logits=self.head(hidden))
"""


def remote_folder(root):
    """A model folder with code of its own, without a mask and without weights."""
    folder = root / "own_code_model"
    folder.mkdir()
    (folder / "configuration_own.py").write_text(_REMOTE_CONFIG)
    (folder / "modeling_own.py").write_text(_REMOTE_MODEL)
    auto_map = {
        "AutoConfig": "configuration_own.OwnConfig",
        "AutoModelForCausalLM": "modeling_own.OwnModel",
    }
    settings = {"model_type": "own_code_of_check", "residual_scale": 0.5}
    settings |= {"architectures": ["OwnModel"], "auto_map": auto_map}
    (folder / "config.json").write_text(json.dumps(settings))
    return folder
