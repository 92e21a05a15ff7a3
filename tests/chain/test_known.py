"""Types that are known to be exact are looked up in a list of the package."""

import transformers

from planner import artifact
from planner.chain import known
from planner.chain.known import ExactTypes, is_known_exact


def listed(monkeypatch, tmp_path, version):
    path = tmp_path / "exact.json"
    artifact.save(ExactTypes(transformers=version, torch="2", types=("mine",)), path)
    monkeypatch.setattr(known, "EXACT_TYPES", path)


def test_a_listed_type_is_known(monkeypatch, tmp_path):
    listed(monkeypatch, tmp_path, transformers.__version__)
    assert is_known_exact("mine")
    assert not is_known_exact("yours")


def test_what_another_version_did_is_not_known(monkeypatch, tmp_path):
    listed(monkeypatch, tmp_path, "3.1.0")
    assert not is_known_exact("mine")


def test_the_package_brings_its_list():
    found = artifact.load(known.EXACT_TYPES, ExactTypes)
    assert len(found.types) >= 185
    assert "llama" in found.types
    assert "reformer" not in found.types
