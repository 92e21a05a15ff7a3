"""How large each field of a configuration becomes, by what its name says.

Fields fall into few kinds: widths, counts of heads or experts, token ids, windows
and probabilities. The first rule whose pattern matches a field's name decides.
The tiny widths fit together by themselves:

    HIDDEN = HEADS x HEAD_DIM        64 = 4 x 16
    2 x HIDDEN = MAMBA_HEADS x HEAD_DIM    128 = 8 x 16

Known limitations: a field whose name says nothing keeps its value.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

HIDDEN = 64
HEADS = 4
HEAD_DIM = HIDDEN // HEADS
MAMBA_HEADS = 2 * HIDDEN // HEAD_DIM
VOCAB = 256
EXPERTS = 8
POSITIONS = 128
WINDOW = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a rule may know about the large configuration.

    Attributes:
        hidden: Its hidden size.
        heads: Its number of attention heads.
    """

    hidden: int
    heads: int


Rule = Callable[[Any, Facts], Any]


def exactly(number: int) -> Rule:
    """The same for every model.

    Args:
        number: The tiny value.

    Returns:
        The rule.
    """
    return lambda value, facts: number


def at_most(number: int) -> Rule:
    """Small values stay.

    Args:
        number: The largest tiny value.

    Returns:
        The rule.
    """
    return lambda value, facts: min(value, number)


def _width(value: int, facts: Facts) -> int:
    """A width in proportion to the hidden size, in steps of eight."""
    if value <= 8:
        return value
    share = value / facts.hidden
    return min(2 * HIDDEN, max(8, 8 * round(share * HIDDEN / 8)))


def _key_value_heads(value: int, facts: Facts) -> int:
    """One head for all, groups of two, or one for each query head."""
    if value == facts.heads:
        return HEADS
    return 1 if value == 1 else HEADS // 2


def _zero(value: Any, facts: Facts) -> Any:
    return type(value)(0)


# The order matters: the first pattern found in the name decides.
RULES: tuple[tuple[re.Pattern[str], Rule], ...] = tuple(
    (re.compile(pattern), rule)
    for pattern, rule in (
        # Chance: what is drawn at random cannot be compared.
        (r"drop|jitter", _zero),
        # Vocabulary.
        (r"^type_vocab_size$|^task_type_vocab_size$|^n_langs$", at_most(4)),
        (r"vocab", exactly(VOCAB)),
        # Positions and windows.
        (
            r"position.*embeddings$|^n_positions$|^n_ctx$|^max_.*_positions$",
            at_most(POSITIONS),
        ),
        (r"^max_seq_len$|^context_length$|^model_max_length$", at_most(POSITIONS)),
        (r"sliding_window_pattern", at_most(2)),
        (r"window|chunk|^local_attention$|^rel_extent$|topk_blocks$", at_most(WINDOW)),
        # Attention.
        (r"(num|n)_(key_value|kv)_heads|kv_n_heads|num_query_groups", _key_value_heads),
        (r"^indexer_kv_heads$", at_most(1)),
        (r"^linear_num_key_heads$|^index_n_heads$", exactly(HEADS // 2)),
        (r"mamba_(n|num)_heads", at_most(MAMBA_HEADS)),
        (r"n_mamba_heads", at_most(2)),
        (r"qk_rope_head_dim", exactly(HEAD_DIM // 2)),
        (r"rotary_dim", at_most(HEAD_DIM // 2)),
        (r"head_?dim|d_head|dim_head|d_kv|kv_channels|head_size", exactly(HEAD_DIM)),
        (r"heads?$|attention_heads_per_layer", exactly(HEADS)),
        (r"_rank$", at_most(HIDDEN // 2)),
        # State spaces.
        (r"^index(er)?_(topk|budget)$", at_most(WINDOW)),
        (r"mamba_d_ssm", exactly(2 * HIDDEN)),
        (r"state(_size)?$", at_most(HEAD_DIM)),
        (r"n_?groups$", at_most(2)),
        # Experts.
        (r"^(n|num)_(expert_)?group$|^topk_group$", at_most(2)),
        (r"num_experts_per_tok|^moe_(topk|top_k|k)$", at_most(2)),
        (r"shared_experts$", at_most(1)),
        (r"experts$|zero_expert_num", at_most(EXPERTS)),
        # Widths.
        (r"hidden_size_per_layer_input", exactly(HEAD_DIM)),
        (r"^(hidden_size|d_model|n_embd|emb_dim|dim_model)$", exactly(HIDDEN)),
        (r"^hidden_size_global$|^adapter_out_dim$", exactly(HIDDEN)),
        (r"intermediate_size|ffn_dim|ffn_hidden_size|dim_ff|^dff$|d_inner", _width),
        (r"_size$|_dim$|_width$|_channels$", _width),
    )
)


# What a class computes with although its own default leaves it open.
FILLED = {
    "head_dim": HEAD_DIM,
    "num_key_value_heads": HEADS,
    "num_experts_per_tok": 2,
}


_WIDTH = re.compile(
    r"head|rope|rotary|_rank$|state|d_ssm|d_inner|hidden|size|dim|width|channels"
    r"|embd|ffn|^dff$|^d_model$"
)
_NO_WIDTH = re.compile(r"vocab|window|chunk|experts|layers|layer_types|position|token")


def is_width(name: str) -> bool:
    """Whether a field says how wide something is.

    Args:
        name: Of the field.

    Returns:
        False for counts of layers, experts, tokens and positions.
    """
    return bool(_WIDTH.search(name)) and not _NO_WIDTH.search(name)


def shrink_field(name: str, value: Any, facts: Facts) -> Any:
    """The tiny value of one field.

    Args:
        name: Of the field.
        value: In the large configuration.
        facts: What else is known about it.

    Returns:
        The tiny value; the value itself where no rule applies.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        return FILLED.get(name) if value is None else value
    for pattern, rule in RULES:
        if pattern.search(name):
            return rule(value, facts)
    return value
