import json
from dataclasses import dataclass

import pytest

from planner import artifact
from planner.artifact import NonNegativeFloat, PositiveInt
from planner.errors import ArtifactError


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallThing:
    """An artifact of the test."""

    size: PositiveInt
    time_s: NonNegativeFloat = 0.0
    names: tuple[str, ...] = ()


def read(**raw: object) -> SmallThing:
    return artifact.from_json(json.dumps(raw), SmallThing, source="here")


def test_what_is_saved_loads_as_the_same_value(tmp_path):
    thing = SmallThing(size=2, time_s=0.1, names=("a", "ü"))
    path = tmp_path / "new" / "folder" / "thing.json"
    artifact.save(thing, path)
    assert artifact.load(path, SmallThing) == thing
    assert [entry.name for entry in path.parent.iterdir()] == ["thing.json"]


def test_absent_fields_take_their_default_and_unknown_ones_are_ignored():
    assert read(size=1, colour="red") == SmallThing(size=1)


def test_a_whole_float_is_as_good_as_an_integer():
    assert artifact.from_json('{"size": 1e9}', SmallThing, source="x").size == 10**9


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"size": 0}', r"here is not a valid small thing: .*\$\.size"),
        ('{"size": 1.5}', r"\$\.size"),
        ('{"size": "1"}', r"\$\.size"),
        ('{"size": true}', r"\$\.size"),
        ("{}", "missing required field `size`"),
        ('{"size": 1, "time_s": -1}', r"\$\.time_s"),
        ('{"size": 1, "time_s": NaN}', r"\$\.time_s"),
        ('{"size": 1, "time_s": Infinity}', r"\$\.time_s"),
        ('{"size": 1, "time_s": 1e999}', "here is not a valid small thing"),
        ('{"size": 1, "names": ["a", 2]}', r"\$\.names\[1\]"),
        ('{"size": 1, "schema_version": 2}', "schema_version is 2, this program reads"),
        ('{"size": ', "here is not a valid small thing"),
        ("[]", "here is not a valid small thing"),
    ],
)
def test_a_wrong_value_is_refused_by_field(text, message):
    with pytest.raises(ArtifactError, match=message):
        artifact.from_json(text, SmallThing, source="here")


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ArtifactError, match=r"cannot read .*: No such file"):
        artifact.load(tmp_path / "none.json", SmallThing)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    path = tmp_path / "thing.json"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ArtifactError, match="is not a valid small thing"):
        artifact.load(path, SmallThing)


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path):
    (tmp_path / "taken").mkdir()
    with pytest.raises(ArtifactError, match="cannot write"):
        artifact.save(SmallThing(size=1), tmp_path / "taken")
    assert [entry.name for entry in tmp_path.iterdir()] == ["taken"]


def test_a_path_that_can_be_written_is_not_touched(tmp_path):
    artifact.check_writable(tmp_path / "new" / "folder" / "a.json")
    assert not list(tmp_path.iterdir())


def test_a_path_that_cannot_be_written_is_refused_before_the_work(
    tmp_path, monkeypatch
):
    (tmp_path / "file").touch()
    with pytest.raises(ArtifactError, match=r"it is a folder; name another file with"):
        artifact.check_writable(tmp_path)
    with pytest.raises(ArtifactError, match=r"/file is a file;"):
        artifact.check_writable(tmp_path / "file" / "a.json")
    monkeypatch.setattr(artifact.os, "access", lambda path, mode: False)
    with pytest.raises(ArtifactError, match=f"{tmp_path} may not be written to"):
        artifact.check_writable(tmp_path / "a.json")
