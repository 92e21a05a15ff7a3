"""Fields that are parts or sums of others stay so."""

from planner.chain.tiny.consistency import agree, shrink_rope


def test_a_head_of_two_parts_is_their_sum():
    fields = {"qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
    tiny = {"qk_rope_head_dim": 8, "qk_nope_head_dim": 16}
    assert agree({**fields, "qk_head_dim": 192}, tiny) == {"qk_head_dim": 24}
    assert agree({**fields, "head_dim": 64}, tiny) == {"head_dim": 8}
    assert agree({**fields, "head_dim": 100}, tiny) == {}


def test_heads_of_one_part_are_left_alone():
    assert agree({"head_dim": 64}, {"head_dim": 16}) == {}


def test_rotary_factors_are_cut_to_the_head():
    rope = {
        "rope_type": "longrope",
        "short_factor": [1.0] * 48,
        "long_factor": [2.0] * 48,
    }
    tiny = shrink_rope(rope, 16)
    assert (tiny["short_factor"], tiny["long_factor"]) == ([1.0] * 8, [2.0] * 8)
    assert (
        shrink_rope({**rope, "partial_rotary_factor": 0.5}, 16)["short_factor"]
        == [1.0] * 4
    )


def test_sections_add_up_to_half_a_head():
    assert shrink_rope({"mrope_section": [16, 24, 24]}, 16)["mrope_section"] == [
        4,
        2,
        2,
    ]


def test_each_kind_of_layer_keeps_its_own_rotary_settings():
    rope = {
        "full_attention": {"original_max_position_embeddings": 8192},
        "sliding_attention": {"rope_theta": 1e4},
    }
    assert shrink_rope(rope, 16) == {
        "full_attention": {"original_max_position_embeddings": 64},
        "sliding_attention": {"rope_theta": 1e4},
    }
