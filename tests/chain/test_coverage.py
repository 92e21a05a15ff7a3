"""Types of transformers, cut everywhere: a third on every run, all on demand.

The third has one type of each structure; where two are alike, the smaller one.
"""

from functools import cache

import pytest
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from planner import artifact
from planner.chain import check, coverage
from planner.chain.known import EXACT_TYPES, ExactTypes, is_known_exact
from planner.chain.parity import CutDifference

# What makes the types of a line different from those above.
THIRD = {
    "plain blocks, rotary": "llama",
    "positions by table": "gpt2 opt openai-gpt ctrl xglm",
    "positions by slope": "bloom mpt",
    "attention beside the feed-forward": "gptj phi cohere2 stablelm",
    "one key for all heads": "gpt_bigcode falcon",
    "kinds of attention": "gpt_neo gemma2 gemma3_text exaone4 smollm3",
    "norms and residuals of their own": "olmo2 glm4 nanochat diffllama minicpm3",
    "encoders made causal": "bert big_bird roformer xlnet xlm xmod rembert",
    "decoders of a pair": "bart whisper prophetnet musicgen trocr",
    "text parts of more": "gemma3 gemma4 mllama fuyu git qwen3_5 moshi",
    "experts with a balance loss": "mixtral dbrx gpt_oss jetmoe ernie4_5_moe",
    "experts without": "deepseek_v3 llama4_text longcat_flash",
    "state spaces": "mamba2 rwkv xlstm recurrent_gemma lfm2",
    "state spaces among attention": "falcon_h1 jamba bamba qwen3_next kimi_linear",
    "one block at several places": "zamba zamba2 hrm_text",
    "more than a hidden state": "zaya cpmant glm_moe_dsa",
    "values of earlier blocks": "gemma3n_text dory blt inkling2_text",
}
REFUSED = {
    "reformer": "runs inside a backward pass of its own",
    "gemma4_assistant": "needs that model's keys and values",
    "gemma4_unified_assistant": "needs that model's keys and values",
}
check_type = cache(coverage.check_type)

NAMES = [name for line in THIRD.values() for name in line.split()]

# Their own code may warn as it likes.
pytestmark = pytest.mark.filterwarnings("ignore")


def test_a_third_of_all_types_is_here():
    assert len(NAMES) == len(set(NAMES))
    assert len(NAMES) >= len(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES) // 3


@pytest.mark.parametrize("name", NAMES)
def test_a_type_is_exact_under_every_cut(name):
    found = check_type(name)
    assert (found.status, found.num_legal > 0) == ("exact", True), found.detail


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_cut_is_refused_by_name(name):
    found = check_type(name)
    assert found.status in ("refused", "no tiny config")
    assert REFUSED[name] in found.detail


@pytest.mark.coverage
@pytest.mark.parametrize("name", MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
def test_every_type_is_exact_or_refused(name):
    found = check_type(name)
    is_listed = name in artifact.load(EXACT_TYPES, ExactTypes).types
    if name in REFUSED:
        assert REFUSED[name] in found.detail
    elif is_listed or is_known_exact("llama"):
        assert found.status == "exact", found.detail
        assert is_listed, EXACT_TYPES
    else:  # of a version that is newer than the list
        assert found.status in ("exact", "refused", "no tiny config"), found.detail


def test_what_travels_is_named_with_the_most_at_once():
    assert check_type("mixtral").travels == ("4 x output of mlp.gate",)
    assert check_type("cpmant").travels == ("argument 2",)
    assert check_type("llama").travels == ()


@pytest.mark.parametrize(
    ("name", "places"),
    [("gemma3n_text", "blocks 4-8"), ("blt", "the embedding, blocks 0-1")],
)
def test_illegal_cuts_are_named_with_their_reason(name, places):
    assert f"no cut after {places}" in check_type(name).detail


def test_the_balance_loss_is_compared():
    assert check_type("mixtral").adds_loss
    assert not check_type("llama").adds_loss


def test_an_offender_is_named(monkeypatch):
    def wrong(source, chain, reference, ends, *, attention):
        return CutDifference(
            last_layers=tuple(ends), loss=0.5, gradient=2.0, where="lm_head.weight"
        )

    monkeypatch.setattr(check, "compare", wrong)
    found = coverage.check_type("gpt2")
    assert found.status == "inexact"
    assert "cut after embedding: loss 5.0e-01, gradient of lm_head" in found.detail
