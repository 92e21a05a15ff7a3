"""Where a model comes from, and what is said when it does not come."""

import json

import pytest
import torch
from architectures import ARCHITECTURES
from model_folders import llama_config
from transformers import AutoConfig

from planner.chain.source import (
    ModelSource,
    build_model,
    find_file,
    open_source,
    open_tokenizer,
    quiet_transformers,
)
from planner.errors import ModelError


@pytest.fixture
def write_config(tmp_path):
    """A folder with nothing but this config.json."""

    def write(content):
        text = content if isinstance(content, str) else json.dumps(content)
        (tmp_path / "config.json").write_text(text)
        return str(tmp_path)

    return write


def error_of(model_id, **options):
    with pytest.raises(ModelError) as caught:
        open_source(model_id, **options)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def test_a_folder_is_its_configuration(write_config):
    folder = write_config(llama_config().to_dict())
    source = open_source(folder, revision="main")
    assert source.config.hidden_size == 32
    assert str(source.folder) == source.id == folder
    assert source.revision == "main"


def test_without_the_hub_an_unknown_name_says_so(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    message = error_of("no-such-person/no-such-model")
    assert "no-such-person/no-such-model" in message
    assert "HF_HUB_OFFLINE" in message
    assert "local folder" in message


def test_without_a_network_it_is_not_waited_for(monkeypatch):
    asked = []

    def ask(*address, **options):
        asked.append(address)
        raise OSError

    for asker in ("source", "refusals"):
        monkeypatch.setattr(f"planner.chain.{asker}.hub_is_reachable", lambda: False)
    monkeypatch.setattr("socket.getaddrinfo", ask)
    monkeypatch.setattr("socket.socket.connect", ask)
    assert "the model hub cannot be reached" in error_of("no-such-person/no-such-model")
    assert not asked


def test_a_missing_folder_is_not_looked_for_on_the_hub(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    assert (
        error_of(str(tmp_path / "gone"))
        == f"there is no model folder {tmp_path}/gone; check the path"
    )


def test_a_folder_without_configuration(tmp_path):
    assert "it has no config.json" in error_of(str(tmp_path))


def test_a_file_is_not_a_folder(write_config):
    path = f"{write_config('{}')}/config.json"
    assert "give the folder that holds config.json" in error_of(path)


def test_a_configuration_that_is_not_json(write_config):
    assert "config.json is not JSON (Expecting" in error_of(write_config("{nonsense"))


def test_a_configuration_without_a_type(write_config):
    assert "model_type" in error_of(write_config({}))


def test_an_architecture_that_this_transformers_does_not_know(write_config):
    assert "`never-seen`" in error_of(write_config({"model_type": "never-seen"}))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"hidden_size": "big"}, "hidden_size"),
        ({"hidden_size": 33}, "33"),
    ],
)
@pytest.mark.transformers5
def test_a_setting_that_cannot_be(write_config, changes, reason):
    folder = write_config(llama_config().to_dict() | changes)
    with pytest.raises(ModelError, match=reason):
        build_model(open_source(folder), dtype=torch.float32, attention="eager")


def test_a_model_that_predicts_no_next_token(write_config):
    message = error_of(write_config({"model_type": "vit"}))
    assert "is a vit model" in message
    assert "causal language model" in message


@pytest.mark.parametrize(
    "auto_map",
    [
        {"AutoConfig": "mine.MyConfig", "AutoModelForCausalLM": "mine.MyModel"},
        {"AutoModelForCausalLM": "mine.MyModel"},
    ],
)
def test_a_model_with_its_own_code_needs_a_yes(write_config, auto_map):
    config = {"model_type": "vit" if len(auto_map) == 1 else "mine"}
    folder = write_config({**config, "auto_map": auto_map})
    assert "--trust-remote-code" in error_of(folder)


def test_own_code_runs_once_it_is_allowed(write_config, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from transformers import LlamaConfig, LlamaForCausalLM\n"
        "class MyConfig(LlamaConfig):\n    model_type = 'mine'\n"
        "class MyModel(LlamaForCausalLM):\n    config_class = MyConfig\n"
    )
    auto_map = {"AutoConfig": "mine.MyConfig", "AutoModelForCausalLM": "mine.MyModel"}
    settings = llama_config().to_dict() | {"model_type": "mine", "auto_map": auto_map}
    source = open_source(write_config(settings), trust_remote_code=True)
    model = build_model(source, dtype=torch.float32, attention="sdpa")
    assert type(model).__name__ == "MyModel"


def test_a_model_is_built_in_training_mode_and_in_its_dtype():
    source = ModelSource(id="tiny", config=llama_config())
    model = build_model(source, dtype=torch.bfloat16, attention="eager")
    assert model.training
    assert model.config._attn_implementation == "eager"
    assert {p.dtype for p in model.parameters()} == {torch.bfloat16}


def test_building_a_model_leaves_its_configuration_as_it_was():
    source = ModelSource(id="tiny", config=llama_config())
    before = source.config.to_dict()
    build_model(source, dtype=torch.bfloat16, attention="eager")
    assert source.config.to_dict() == before
    assert source.config._attn_implementation != "eager"


def test_an_attention_that_the_model_does_not_have():
    source = ModelSource(id="tiny", config=ARCHITECTURES["bloom"])
    with pytest.raises(ModelError, match=r"no attention 'sdpa'.*--attention auto"):
        build_model(source, dtype=torch.float32, attention="sdpa")
    model = build_model(source, dtype=torch.float32, attention="auto")
    assert model.config._attn_implementation == "eager"


def test_files_of_a_folder_are_found_where_they_are(write_config, tmp_path):
    source = open_source(write_config(llama_config().to_dict()))
    assert find_file(source, "config.json") == tmp_path / "config.json"
    assert find_file(source, "model.safetensors") is None


def test_a_model_without_tokenizer_has_none(write_config):
    assert open_tokenizer(open_source(write_config(llama_config().to_dict()))) is None


def test_transformers_is_quiet_only_inside(write_config):
    from transformers.utils import logging

    before = logging.get_verbosity(), logging.is_progress_bar_enabled()
    with quiet_transformers():
        assert logging.get_verbosity() == logging.ERROR
        assert not logging.is_progress_bar_enabled()
        with pytest.raises(OSError, match="JSON"):
            AutoConfig.from_pretrained(write_config("{nonsense"))
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == before
