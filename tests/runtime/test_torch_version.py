"""The schedule runtime is private to torch: only tested versions of it are run."""

import pytest
import torch
from plan_samples import small_plan

from planner.errors import RunError
from planner.runtime import RunOptions, run_plan
from planner.runtime.torch_version import check_torch_version


@pytest.mark.parametrize("version", ["2.13.0", "2.13.1+cu130"])
def test_a_tested_torch_is_accepted(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    check_torch_version()


@pytest.mark.parametrize("version", ["2.12.1", "2.130.0", "3.13.0"])
def test_another_torch_is_refused_with_both_versions(monkeypatch, version):
    monkeypatch.setattr(torch, "__version__", version)
    with pytest.raises(RunError, match=rf"torch {version} .* with 2\.13 only; pip"):
        check_torch_version()


def test_a_run_is_refused_before_anything_is_made(monkeypatch, tmp_path):
    monkeypatch.setattr(torch, "__version__", "2.14.0")
    with pytest.raises(RunError, match=r"torch 2\.14\.0 is installed"):
        run_plan(small_plan(), RunOptions(output_dir=tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_the_tested_torch_is_the_one_that_is_installed():
    check_torch_version()
