"""Chats and completions as tokens: what is learned, and what is only given."""

import json
import re

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from planner.errors import DataError
from planner.runtime.data import load_sequences
from planner.runtime.packing import IGNORED

WORDS = ["<end>", "<user>", "<assistant>", "<system>", *"abcdefgh"]
PLAIN = (
    "{% for m in messages %}<{{ m.role }}> {{ m.content }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
MASKED = (
    "{% for m in messages %}<{{ m.role }}> "
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }} <end>"
    "{% endgeneration %} {% else %}{{ m.content }} <end> {% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
# Forgets what was said before the last question, as templates of reasoners do.
FORGETFUL = (
    "{% for m in messages[-2:] %}<{{ m.role }}> {{ m.content }} <end> {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
STRICT = "{{ raise_exception('roles must alternate') }}"


def tokenizer(template):
    made = Tokenizer(models.WordLevel({w: i for i, w in enumerate(WORDS)}, "<end>"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=made, chat_template=template, eos_token="<end>"
    )


def said(*pairs):
    return [{"role": role, "content": content} for role, content in pairs]


def load(tmp_path, *lines, template=PLAIN, **options):
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    own = tokenizer(template)

    def encode(text):
        return own(text, add_special_tokens=False)["input_ids"]

    defaults = {"seq_len": 14, "vocab_size": len(WORDS), "encode": encode, "eos_id": 0}
    return load_sequences(str(path), tokenizer=own, **{**defaults, **options})


def learned(sequences, row=0):
    """The words that are targets."""
    return [WORDS[i] for i in sequences.labels[row].tolist() if i != IGNORED]


def written(sequences, row=0):
    length = int(sequences.attention_mask[row].sum())
    return " ".join(WORDS[i] for i in sequences.input_ids[row, :length].tolist())


CHAT = said(("system", "a"), ("user", "b"), ("assistant", "c d"), ("user", "e"))


@pytest.mark.parametrize("template", [PLAIN, MASKED])
def test_only_what_the_assistant_says_is_learned(tmp_path, template):
    chat = [*CHAT, *said(("assistant", "f"))]
    sequences = load(tmp_path, {"messages": chat}, template=template, seq_len=18)
    assert written(sequences) == (
        "<system> a <end> <user> b <end> <assistant> c d <end> "
        "<user> e <end> <assistant> f <end>"
    )
    assert learned(sequences) == ["c", "d", "<end>", "f", "<end>"]


@pytest.mark.parametrize("template", [PLAIN, MASKED])
def test_of_a_prompt_of_messages_not_even_answers_are_learned(tmp_path, template):
    line = {"prompt": CHAT, "completion": said(("assistant", "f g"))}
    sequences = load(tmp_path, line, template=template, seq_len=18)
    assert learned(sequences) == ["f", "g", "<end>"]


def test_a_completion_is_learned_to_its_end_and_a_prompt_is_not(tmp_path):
    sequences = load(tmp_path, {"prompt": "a b", "completion": "c d"})
    assert written(sequences) == "a b c d <end>"
    assert learned(sequences) == ["c", "d", "<end>"]


def test_chats_completions_and_tokens_may_stand_in_one_file(tmp_path):
    sequences = load(
        tmp_path,
        {"messages": said(("user", "a"), ("assistant", "b"))},
        {"prompt": "a", "completion": "c"},
        {"input_ids": [4, 5]},
    )
    assert [learned(sequences, row) for row in range(3)] == [
        ["b", "<end>"],
        ["c", "<end>"],
        ["a", "b"],
    ]


@pytest.mark.parametrize(
    ("line", "template", "words"),
    [
        ({"messages": CHAT[:2]}, PLAIN, "line 1 has no answer of the assistant"),
        ({"messages": CHAT}, None, 'tokenizer has no chat template; give "prompt"'),
        ({"messages": CHAT}, STRICT, "refuses these messages: roles must alternate"),
        (
            {"messages": [*CHAT, *said(("assistant", "f"))]},
            FORGETFUL,
            "writes the first 2 messages otherwise once others follow",
        ),
        ({"messages": []}, PLAIN, "messages is not a list of messages"),
        ({"messages": ["a"]}, PLAIN, "messages is not a list of messages"),
        ({"prompt": "a", "completion": ""}, PLAIN, "completion is empty"),
        ({"prompt": "a", "completion": 3}, PLAIN, "prompt is not a list of messages"),
        ({"prompt": "a"}, PLAIN, 'needs "text", "messages", .* it has prompt'),
        ([1], PLAIN, "is no object"),
    ],
)
def test_what_cannot_be_learned_is_refused_by_its_line(tmp_path, line, template, words):
    with pytest.raises(DataError, match=words):
        load(tmp_path, line, template=template)


LONG = {"input_ids": [4, 5, 6, 7, 8], "labels": [IGNORED, 5, 6, 7, 8]}


def test_a_long_sample_is_refused_unless_something_is_said(tmp_path):
    with pytest.raises(DataError, match=r"has 5 tokens .* --long-samples truncate"):
        load(tmp_path, LONG, seq_len=2)


@pytest.mark.parametrize(
    ("how", "rows", "note"),
    [
        ("truncate", [[4, 5], [9, 0]], "1 of 2 samples .* 2 tokens: cut off there"),
        ("split", [[4, 5], [6, 7], [8, 0], [9, 0]], "split into rows"),
    ],
)
def test_a_long_sample_is_cut_off_or_split_and_that_is_told(tmp_path, how, rows, note):
    short = {"input_ids": [9]}
    sequences = load(tmp_path, LONG, short, seq_len=2, long_samples=how)
    assert sequences.input_ids.tolist() == rows
    assert sequences.labels[0].tolist() == [IGNORED, 5]
    (told,) = sequences.notes
    assert re.search(note, told)


def test_a_part_that_is_all_padding_is_no_row(tmp_path):
    line = {"input_ids": [4, 5, 6, 7], "attention_mask": [1, 1, 0, 0]}
    sequences = load(tmp_path, line, seq_len=2, long_samples="split")
    assert sequences.input_ids.tolist() == [[4, 5]]
    assert sequences.labels.tolist() == [[4, 5]]
