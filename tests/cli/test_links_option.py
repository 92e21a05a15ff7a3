"""`planner profile --links` and what `planner solve` makes of it."""

import dataclasses
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner import artifact
from planner.cli import main
from planner.errors import LinkError
from planner.model_profile import (
    LayerProfile,
    MeasuredLink,
    ModelProfile,
    ProfiledCluster,
    ProfiledDevice,
    load_profile,
)
from planner.plan import load_plan
from planner.units import GIB

CLUSTER = ProfiledCluster(
    devices=("cpu", "cpu"),
    backend="gloo",
    links=tuple(
        MeasuredLink(
            source=a,
            target=b,
            bandwidth=3e9,
            duplex_bandwidth=2e9,
            latency_s=0.25e-3,
        )
        for a, b in ((0, 1), (1, 0))
    ),
)


def profile_for(type, **changes):
    device = ProfiledDevice(name=type, type=type, memory_bytes=8 * GIB)
    layer = {"forward_s": 0.01, "backward_s": 0.02, "output_bytes": 10**6}
    layers = tuple(LayerProfile(name=f"layer.{i}", **layer) for i in range(6))
    return ModelProfile(device=device, layers=layers, **changes)


def call(*arguments):
    return CliRunner().invoke(main, arguments)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Commands write relative to where they are called."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def asked(monkeypatch):
    """What the command asks of the measurement, which answers at once."""
    calls = []

    def measure_links(device, *, progress, **options):
        calls.append((device, options))
        progress("measuring links")
        return CLUSTER

    monkeypatch.setattr("planner.measure.measure_links", measure_links)
    monkeypatch.setattr("planner.measure.usual_device", lambda: "cpu")
    monkeypatch.setattr(
        "planner.measure.profile_model", lambda *args, **options: profile_for("cpu")
    )
    return calls


def write_profile(name, profile, age_s):
    path = Path("profiles") / name
    artifact.save(profile, path)
    seconds = path.stat().st_mtime - age_s
    os.utime(path, (seconds, seconds))
    return path


def test_links_of_a_model_s_profile_are_measured_where_it_is(asked):
    result = call("profile", "tiny", "--device", "cpu", "--links", "-o", "x.json")
    assert result.exit_code == 0, result.output
    assert load_profile(Path("x.json")).cluster == CLUSTER
    assert asked == [("cpu", {"num_processes": None, "timeout_s": 30.0})]
    assert "2 devices over gloo" in result.stdout


def test_a_profile_for_a_card_has_links_of_cards(asked):
    call("profile", "tiny", "--device", "rtx3090", "--links")
    assert asked[0][0] == "cuda"


def test_without_links_none_are_measured(asked):
    call("profile", "tiny", "-o", "x.json")
    assert not asked
    assert load_profile(Path("x.json")).cluster is None


def test_links_alone_go_into_the_newest_profile_of_their_device(asked):
    write_profile("oldest.json", profile_for("cpu"), age_s=30)
    path = write_profile("older.json", profile_for("cpu"), age_s=20)
    write_profile("card.json", profile_for("cuda"), age_s=10)
    Path("profiles/torn.json").write_text("{")
    result = call("profile", "--links", "--num-processes", "3", "--link-timeout", "5")
    assert result.exit_code == 0, result.output
    assert asked == [("cpu", {"num_processes": 3, "timeout_s": 5.0})]
    changed = dataclasses.replace(profile_for("cpu"), cluster=CLUSTER)
    assert load_profile(path) == changed
    assert result.stdout.splitlines()[-1] == f"wrote the links into {path}"
    for name in ("oldest.json", "card.json"):
        assert load_profile(Path("profiles") / name).cluster is None


@pytest.mark.usefixtures("asked")
def test_links_alone_go_into_the_profile_that_is_named():
    write_profile("newest.json", profile_for("cpu"), age_s=0)
    artifact.save(profile_for("cuda"), Path("mine.json"))
    result = call("profile", "--links", "-o", "mine.json")
    assert load_profile(Path("mine.json")).cluster == CLUSTER
    assert load_profile(Path("profiles/newest.json")).cluster is None
    assert "warning: that profile is for cuda, not for cpu" in result.stderr


@pytest.mark.usefixtures("asked")
def test_links_without_a_profile_are_shown_and_the_next_step_is_said():
    result = call("profile", "--links")
    assert result.exit_code == 0
    assert "3.0 | 2.0" in result.stdout
    assert "250 us" in result.stdout
    assert "not kept: profiles/ has no profile for cpu; name one with -o" in (
        result.stdout
    )


@pytest.mark.usefixtures("asked")
def test_links_as_json_are_alone_on_stdout():
    write_profile("a.json", profile_for("cpu"), age_s=0)
    result = call("profile", "--links", "--json")
    assert artifact.from_json(result.stdout, ProfiledCluster, source="x") == CLUSTER
    assert "wrote the links into profiles/a.json" in result.stderr


def test_a_missing_profile_is_an_error_before_anything_is_measured(asked):
    result = call("profile", "--links", "-o", "absent.json")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: cannot read the model profile absent.json")
    assert not asked


def test_neither_model_nor_links_is_bad_usage():
    result = call("profile")
    assert result.exit_code == 2
    assert "Missing argument 'MODEL', or --links" in result.stderr


@pytest.mark.usefixtures("asked")
def test_a_pair_that_fails_is_one_line(monkeypatch):
    def measure_links(device, **options):
        msg = "device 0 and device 1 cannot exchange tensors"
        raise LinkError(msg)

    monkeypatch.setattr("planner.measure.measure_links", measure_links)
    result = call("profile", "--links")
    assert result.exit_code == 1
    assert result.stderr == "error: device 0 and device 1 cannot exchange tensors\n"


PIPELINE = ("--copies", "1", "--schedule", "1f1b")


def test_solve_takes_measured_links_and_says_so():
    artifact.save(profile_for("cpu", cluster=CLUSTER), Path("p.json"))
    result = call("solve", "p.json", "--gpus", "2", *PIPELINE)
    assert result.exit_code == 0, result.output
    assert result.stderr == "using the links that the profile measured\n"
    assert "links: 2.00GB/s,250us (measured)" in result.stdout.splitlines()
    (link,) = load_plan(Path("plan.json")).links
    assert (link.bandwidth, link.latency_s, link.origin) == (2e9, 0.25e-3, "measured")
    sends_s = load_plan(Path("plan.json")).stages[0].predicted.send_forward_s
    assert sends_s == pytest.approx(0.25e-3 + 10**6 / 2e9)


def test_solve_takes_one_link_for_each_pair():
    artifact.save(profile_for("cuda"), Path("p.json"))
    wishes = ["--link", "pcie4x8,3GB/s,10us", "--schedule", "1f1b"]
    result = call("solve", "p.json", "--gpus", "3", *wishes)
    assert "links: 0-1 pcie4x8; 1-2 3GB/s,10us (given)" in result.stdout.splitlines()
    links = json.loads(Path("plan.json").read_text())["links"]
    assert [link["name"] for link in links] == ["pcie4x8", "3GB/s,10us"]
