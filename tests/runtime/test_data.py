import itertools
import json
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import DataError
from planner.runtime.data import batches, load_sequences, steps_per_epoch
from planner.runtime.text_files import BUILTIN_LIMIT_BYTES, read_source


def write(folder: Path, name: str, content: str | bytes) -> str:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(path)


def write_lines(folder: Path, *lines: object) -> str:
    return write(folder, "lines.jsonl", "".join(json.dumps(x) + "\n" for x in lines))


def letters(text: str) -> list[int]:
    """A tokenizer with the vocabulary a = 1, b = 2, ..."""
    return [ord(letter) - ord("a") + 1 for letter in text if letter.isalpha()]


def load(source: str, **options):
    defaults = {"seq_len": 4, "vocab_size": 30, "encode": letters, "eos_id": 29}
    return load_sequences(source, **(defaults | options))


def all_batches(sequences, num_steps, global_batch_size=2, **options):
    defaults = {"shuffle": True, "seed": 0}
    return list(
        batches(
            sequences,
            num_steps=num_steps,
            global_batch_size=global_batch_size,
            **(defaults | options),
        )
    )


# --- rows ---------------------------------------------------------------------


def test_documents_are_joined_and_the_last_row_is_filled(tmp_path):
    source = write_lines(tmp_path, {"text": "abc"}, {"text": "de"})
    sequences = load(source)
    assert sequences.input_ids.tolist() == [[1, 2, 3, 29], [4, 5, 29, 29]]
    assert sequences.labels.tolist() == [[1, 2, 3, 29], [4, 5, -100, -100]]
    assert not sequences.has_padding


def test_without_an_end_token_documents_follow_directly(tmp_path):
    source = write_lines(tmp_path, {"text": "abc"}, {"text": "de"})
    rows = load(source, eos_id=None).input_ids.tolist()
    assert rows == [[1, 2, 3, 0], [4, 5, 0, 0]]


def test_a_last_row_of_one_token_takes_one_more_along(tmp_path):
    sequences = load(write(tmp_path, "a.txt", "abcde"))
    assert sequences.labels.tolist() == [[1, 2, 3, -100], [4, 5, -100, -100]]


def test_without_a_tokenizer_bytes_are_tokens(tmp_path):
    source = write(tmp_path, "a.txt", "hé!")
    sequences = load(source, encode=None, vocab_size=256)
    assert sequences.input_ids.tolist() == [[0x68, 0xC3, 0xA9, 0x21]]


def test_bytes_need_a_vocabulary_of_256(tmp_path):
    with pytest.raises(DataError, match="vocabulary of 256, but the model has 255"):
        load(write(tmp_path, "a.txt", "text"), encode=None, vocab_size=255)


def test_token_lines_are_filled_and_masked(tmp_path):
    source = write_lines(
        tmp_path,
        {"input_ids": [1, 2], "labels": [-100, 2]},
        {"input_ids": [3, 4, 5, 6], "attention_mask": [0, 1, 1, 1]},
    )
    sequences = load(source, eos_id=None)
    assert sequences.input_ids.tolist() == [[1, 2, 0, 0], [3, 4, 5, 6]]
    assert sequences.labels.tolist() == [[-100, 2, -100, -100], [-100, 4, 5, 6]]
    assert sequences.attention_mask.tolist() == [[1, 1, 0, 0], [0, 1, 1, 1]]
    assert sequences.has_padding


def test_full_token_lines_need_no_mask(tmp_path):
    source = write_lines(tmp_path, {"input_ids": [1, 2, 3, 4]})
    assert not load(source).has_padding


@given(
    texts=st.lists(st.text("abc", max_size=9), min_size=1), seq_len=st.integers(2, 7)
)
def test_every_token_is_in_the_rows_exactly_once(tmp_path_factory, texts, seq_len):
    texts = [*texts, "ab"]
    source = write_lines(tmp_path_factory.mktemp("d"), *({"text": t} for t in texts))
    labels = load(source, seq_len=seq_len).labels.flatten()
    expected = letters("z".join(filter(None, texts)))
    found = labels[labels != -100].tolist()
    assert [26 if token == 29 else token for token in found] == expected


# --- sources ------------------------------------------------------------------


def test_a_folder_is_read_in_sorted_order_without_hidden_files(tmp_path):
    write(tmp_path, "b.txt", "b")
    write(tmp_path, "a/z.txt", "a")
    write(tmp_path, "c.jsonl", '{"text": "c"}')
    write(tmp_path, ".hidden/x.txt", "x")
    assert [text.text for text in read_source(str(tmp_path))] == ["a", "b", "c"]


def test_a_byte_order_mark_is_no_text(tmp_path):
    (text,) = read_source(write(tmp_path, "a.txt", b"\xef\xbb\xbfhello"))
    assert text.text == "hello"


def test_other_line_separators_inside_a_json_text_are_text(tmp_path):
    line = json.dumps({"text": "a\u2028b"}, ensure_ascii=False)
    (text,) = read_source(write(tmp_path, "a.jsonl", line))
    assert text.text == "a\u2028b"


def test_builtin_is_the_standard_library_up_to_two_megabytes():
    texts = read_source("builtin")
    assert texts == read_source("builtin")
    num_bytes = sum(len(text.text.encode()) for text in texts)
    assert BUILTIN_LIMIT_BYTES / 2 < num_bytes <= BUILTIN_LIMIT_BYTES


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", r"a\.txt is empty"),
        ("a.txt", " \n\n", r"a\.txt is empty"),
        ("a.jsonl", "\n", r"a\.jsonl is empty"),
        ("a.txt", b"abc\xff", r"a\.txt is not UTF-8 text: byte 0xff at offset 3"),
        ("a.jsonl", '{"text": "a"}\n{"text":', r"a\.jsonl line 2 is not valid JSON"),
        ("a.jsonl", '{"txt": "a"}', r"line 1 needs \"text\""),
        ("a.jsonl", '["a"]', "line 1 is no object"),
        ("a.jsonl", '{"text": 3}', r"line 1 needs \"text\""),
        ("a.jsonl", '{"input_ids": []}', r"line 1: input_ids is empty"),
        ("a.jsonl", '{"input_ids": [1, true]}', r"line 1: input_ids is not a list"),
        ("a.jsonl", '{"input_ids": [1.5]}', r"line 1: input_ids is not a list"),
        (
            "a.jsonl",
            '{"input_ids": [1, 2]}\n{"input_ids": [1, 2], "labels": [1]}',
            r"line 2: labels has 1 entries but input_ids has 2",
        ),
        (
            "a.jsonl",
            '{"input_ids": [1, 2], "attention_mask": [1, 1, 1]}',
            r"line 1: attention_mask has 3 entries but input_ids has 2",
        ),
        (
            "a.jsonl",
            '{"input_ids": [1, 2], "attention_mask": [1, 2]}',
            r"line 1: attention_mask has entries other than 0 and 1",
        ),
        (
            "a.jsonl",
            '{"input_ids": [1, 2], "attention_mask": [0, 0]}',
            r"line 1: attention_mask is 0 everywhere",
        ),
        (
            "a.jsonl",
            '{"input_ids": [1, 2, 3, 4, 5]}',
            r"line 1 has 5 tokens but a sequence of this plan has 4",
        ),
        ("a.jsonl", '{"input_ids": [1, 30]}', r"line 1 has the token 30, .* 0 to 29"),
        ("a.jsonl", '{"input_ids": [1, -1]}', r"line 1 has the token -1, .* 0 to 29"),
        (
            "a.jsonl",
            f'{{"input_ids": [{2**70}, 1]}}',
            r"line 1: input_ids is not a list",
        ),
        (
            "a.jsonl",
            '{"input_ids": [1, 2], "labels": [-100, -99]}',
            r"line 1 has the label -99",
        ),
        (
            "a.jsonl",
            '{"input_ids": [1, 2], "labels": [1, -100]}',
            r"has no target token",
        ),
        ("a.txt", "a", r"has no target token"),
        (
            "a.jsonl",
            '{"text": "ab"}\n{"input_ids": [1]}',
            r"mixes text .*line 1.*line 2",
        ),
    ],
)
def test_data_that_cannot_be_used_is_refused_by_place(tmp_path, name, content, message):
    with pytest.raises(DataError, match=message) as caught:
        load(write(tmp_path, name, content))
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"there is no data at .*nowhere\.txt"):
        load(str(tmp_path / "nowhere.txt"))


def test_a_folder_without_text_is_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="holds no text"):
        load(str(tmp_path))


# --- batches ------------------------------------------------------------------


def numbered(tmp_path, num_rows):
    """Row r is [r, r, r, r]."""
    lines = ({"input_ids": [row] * 4} for row in range(num_rows))
    return load(write_lines(tmp_path, *lines))


def rows_of(batch) -> list[int]:
    """The numbers of the rows of a batch; None for a filled row."""
    return [row[0] if row[0] != -100 else None for row in batch.labels.tolist()]


def test_without_shuffle_epochs_repeat_the_order_and_the_last_batch_is_filled(tmp_path):
    found = all_batches(numbered(tmp_path, 3), num_steps=4, shuffle=False)
    assert [rows_of(batch) for batch in found] == [[0, 1], [2, None]] * 2
    assert [batch.num_target_tokens for batch in found] == [6, 3, 6, 3]
    assert found[1].attention_mask.tolist() == [[1, 1, 1, 1]] * 2
    assert {batch.input_ids.shape for batch in found} == {(2, 4)}


@given(
    num_rows=st.integers(1, 12),
    global_batch_size=st.integers(1, 5),
    seed=st.integers(0, 99),
)
def test_every_epoch_has_every_row_once(
    tmp_path_factory, num_rows, global_batch_size, seed
):
    sequences = numbered(tmp_path_factory.mktemp("d"), num_rows)
    per_epoch = steps_per_epoch(num_rows, global_batch_size)
    found = all_batches(
        sequences, 2 * per_epoch, global_batch_size=global_batch_size, seed=seed
    )
    for epoch in (found[:per_epoch], found[per_epoch:]):
        rows = itertools.chain.from_iterable(map(rows_of, epoch))
        assert sorted(row for row in rows if row is not None) == [*range(num_rows)]


def test_every_rank_draws_the_same_order_whatever_its_random_state(tmp_path):
    sequences = numbered(tmp_path, 12)
    orders = []
    for rank in range(3):
        torch.manual_seed(rank)
        orders.append([rows_of(batch) for batch in all_batches(sequences, 12)])
    assert orders[0] == orders[1] == orders[2]


def test_epochs_and_seeds_differ_in_order(tmp_path):
    sequences = numbered(tmp_path, 12)
    orders = [rows_of(batch) for batch in all_batches(sequences, 12)]
    first, second = orders[:6], orders[6:]
    other = [rows_of(batch) for batch in all_batches(sequences, 6, seed=1)]
    assert len({str(order) for order in (first, second, other)}) == 3


def test_a_step_without_a_target_is_refused_before_the_first_batch(tmp_path):
    source = write_lines(
        tmp_path,
        {"input_ids": [1, 2]},
        {"input_ids": [1, 2], "labels": [1, -100]},
    )
    with pytest.raises(DataError, match="step 2 would have no target token"):
        batches(load(source), global_batch_size=1, num_steps=2, shuffle=False, seed=0)
