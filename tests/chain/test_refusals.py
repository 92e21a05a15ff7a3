"""A model that cannot be read is refused in one line with the next step."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fake_hub import ANSWERS, fake_hub
from model_folders import llama_config

from planner.chain.refusals import check_folder, why_not_built
from planner.chain.source import build_model, open_source
from planner.errors import ModelError
from planner.measure import Lines, profile_model

ROOT = Path(__file__).parents[2]
_ASK = """
import json, sys
from planner.chain.source import open_source
from planner.errors import ModelError
said = {}
for name in sys.argv[1:]:
    try:
        open_source(name, revision="v9" if name == "org/old" else None)
    except ModelError as error:
        said[name] = str(error)
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def hub_errors(tmp_path_factory):
    """What is said of each name, by a process that knows only our hub."""
    with fake_hub() as address:
        done = subprocess.run(
            [sys.executable, "-c", _ASK, *ANSWERS],
            env=_without_proxies()
            | {
                "HF_ENDPOINT": address,
                "HF_HOME": str(tmp_path_factory.mktemp("hub")),
                "HF_HUB_OFFLINE": "0",
                "PYTHONPATH": str(ROOT),
            },
            capture_output=True,
            text=True,
            check=True,
            timeout=120,
        )
    return json.loads(done.stdout.splitlines()[-1])


def _without_proxies():
    return {key: x for key, x in os.environ.items() if "proxy" not in key.lower()}


@pytest.mark.parametrize(
    ("name", "problem", "next_step"),
    [
        ("org/gated", "is gated: ask for access at http", "hf auth login"),
        ("org/denied", "is gated: ask for access at http", "hf auth login"),
        ("org/unknown", "neither a folder here nor a model", "check the spelling"),
        ("org/empty", "no config.json with a model_type", "format of transformers"),
        ("org/old", "has no revision 'v9'", "lists what it has"),
        ("org/closed", "with status 401", "hf auth login"),
    ],
)
def test_what_the_hub_refuses(hub_errors, name, problem, next_step):
    (line,) = hub_errors[name].splitlines()
    assert name in line
    assert problem in line
    assert next_step in line


@pytest.fixture
def write_config(tmp_path):
    """A folder whose config.json is a tiny Llama's with these changes."""

    def write(**changes):
        settings = llama_config().to_dict() | changes
        (tmp_path / "config.json").write_text(json.dumps(settings))
        return str(tmp_path)

    return write


def error_of(folder):
    with pytest.raises(ModelError) as caught:
        build_model(open_source(folder), dtype=torch.float32, attention="eager")
    (line,) = str(caught.value).splitlines()
    assert folder in line
    return line


@pytest.mark.parametrize("value", [0, -1])
@pytest.mark.parametrize(
    "name",
    [
        "intermediate_size",
        "num_hidden_layers",
        "num_key_value_heads",
        "head_dim",
        "vocab_size",
        "max_position_embeddings",
    ],
)
def test_a_size_below_one_is_named(write_config, name, value):
    error = error_of(write_config(**{name: value}))
    assert error.endswith(f"says {name} {value}, which must be at least 1; correct it")


def test_a_size_is_named_as_the_file_names_it(tmp_path):
    settings = {"model_type": "gpt2", "n_layer": 0}
    (tmp_path / "config.json").write_text(json.dumps(settings))
    assert "says n_layer 0," in error_of(str(tmp_path))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"num_key_value_heads": 3}, "3, which must divide the 4 heads"),
        ({"num_hidden_layers": 10**12}, "more than the 10000 that are sensible"),
        ({"num_attention_heads": 0}, "config.json"),
        ({"hidden_size": 0}, "config.json"),
        ({"hidden_size": 33, "head_dim": None}, "33"),
        ({"vocab_size": None}, "config.json"),
        ({"hidden_act": "nonsense"}, "nonsense"),
        ({"rope_parameters": {"rope_type": "nonsense", "rope_theta": 1.0}}, "nonsense"),
        ({"dtype": "float7"}, "float7"),
        ({"pad_token_id": 999}, "check .*config.json, or try another version"),
    ],
)
@pytest.mark.transformers5
def test_a_configuration_that_cannot_be_built(write_config, changes, reason):
    assert re.search(reason, error_of(write_config(**changes)))


@pytest.mark.transformers5
def test_nothing_of_the_validator_is_in_the_way(write_config):
    error = error_of(write_config(hidden_size=33, head_dim=None))
    assert "alidation error" not in error
    assert "config.json cannot be used: The hidden size (33) is not a multiple" in error


def test_more_experts_chosen_than_there_are(tmp_path):
    settings = llama_config().to_dict() | {
        "model_type": "mixtral",
        "num_local_experts": 2,
        "num_experts_per_tok": 8,
    }
    (tmp_path / "config.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match=r"does not run .*; check its configuration"):
        profile_model(
            str(tmp_path),
            device="rtx3090",
            dtype="bfloat16",
            seq_len=16,
            microbatch_sizes=(1,),
            attention="auto",
            revision=None,
            trust_remote_code=False,
            progress=Lines(say=[].append),
        )


@pytest.mark.parametrize(
    "content", ["", "{nonsense", "\x00\x01", "[1, 2]", "3", "null"]
)
def test_a_file_that_holds_no_settings(tmp_path, content):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ModelError, match=r"config\.json .*; copy the model's own file"):
        check_folder(str(tmp_path))


def test_a_gguf_file_is_told_apart(tmp_path):
    path = tmp_path / "model.gguf"
    path.write_bytes(b"GGUF")
    with pytest.raises(ModelError, match="is a file in the GGUF format; give the fold"):
        check_folder(str(path))


def test_a_folder_in_place_of_the_configuration(tmp_path):
    (tmp_path / "config.json").mkdir()
    with pytest.raises(ModelError, match=r"it has no config\.json; give the folder"):
        check_folder(str(tmp_path))


def test_a_name_on_the_hub_is_no_folder_to_check():
    check_folder("org/model")


def test_an_attention_whose_package_is_missing():
    error = ImportError("the package for FlashAttention2 is not installed.")
    assert why_not_built("tiny", error, "flash_attention_2") == (
        "attention 'flash_attention_2' cannot be used here (the package for "
        "FlashAttention2 is not installed); let the model choose with --attention auto"
    )
