import dataclasses
import json
import os
from pathlib import Path

import pytest
from click.testing import CliRunner
from plan_samples import small_plan

from planner import __version__, artifact
from planner.cli import main
from planner.cli.parameters import file_stem
from planner.cli.profile_command import default_path
from planner.errors import RunError
from planner.model_profile import (
    LayerProfile,
    ModelInfo,
    ModelProfile,
    ProfiledDevice,
    load_profile,
    sha256_of,
)
from planner.plan import Plan, load_plan
from planner.run_record import Measured, MeasuredStage, RunRecord
from planner.units import GIB

PROFILE = ModelProfile(
    model=ModelInfo(id="tiny", num_parameters=6_000_000),
    device=ProfiledDevice(name="rtx3090", memory_bytes=24 * GIB),
    dtype="float32",
    seq_len=8,
    layers=tuple(
        LayerProfile(
            name=f"layer.{i}",
            num_parameters=1_000_000,
            forward_s=0.01,
            backward_s=0.02,
            activation_bytes=1000,
            output_bytes=100,
        )
        for i in range(6)
    ),
)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Commands write relative to where they are called."""
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def profile_path(tmp_path):
    artifact.save(PROFILE, tmp_path / "tiny.json")
    return "tiny.json"


@pytest.fixture
def plan_path(tmp_path):
    artifact.save(small_plan(), tmp_path / "plan.json")
    return "plan.json"


def call(*arguments: str):
    return CliRunner().invoke(main, arguments)


def the_error(result, exit_code: int = 1) -> str:
    """The one line that a user's mistake ends in."""
    assert result.exit_code == exit_code, result.output
    (line,) = [x for x in result.stderr.splitlines() if x.startswith("error: ")]
    assert result.stderr.endswith(line + "\n")
    assert "Traceback" not in result.output
    return line


# --- all commands -------------------------------------------------------------


def test_help_names_every_command():
    result = call("--help")
    assert result.exit_code == 0
    for name in ("profile", "solve", "run", "report", "check", "cards", "demo"):
        assert f"  {name} " in result.stdout


def test_the_version_is_the_package_s():
    assert call("--version").stdout == f"planner, version {__version__}\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["nonsense"],
        ["solve"],
        ["solve", "--gpus", "2", "--schedule", "best"],
        ["solve", "--gpus", "2", "--microbatch-size", "few"],
        ["profile", "x", "--microbatch-size", "1,0"],
        ["profile", "x", "--seq-len", "0"],
        ["run", "plan.json", "--steps", "many"],
    ],
)
def test_bad_usage_ends_with_two(arguments):
    assert call(*arguments).exit_code == 2


# --- cards --------------------------------------------------------------------


def test_cards_as_a_table_and_as_json():
    assert "GeForce RTX 3090 Ti" in call("cards").stdout
    names = [
        card["name"] for card in json.loads(call("cards", "--json").stdout)["cards"]
    ]
    assert "rtx3090ti" in names


def test_a_mistake_in_a_users_card_is_one_line(tmp_path, monkeypatch):
    path = tmp_path / "mine.toml"
    path.write_text("[mine]\nmemory_mib = 8000\n")
    monkeypatch.setenv("PLANNER_CARDS", str(path))
    for arguments in (["cards"], ["cards", "--json"]):
        message = the_error(call(*arguments))
        assert message == f"error: {path}: card 'mine': bf16_tflops is missing"


# --- profile ------------------------------------------------------------------


@pytest.fixture
def asked(monkeypatch):
    """What `profile` asks of the measurement, which answers at once."""
    calls = []

    def profile_model(model_id, *, progress, **options):
        calls.append((model_id, options))
        progress.say("measuring")
        return PROFILE

    monkeypatch.setattr("planner.measure.profile_model", profile_model, raising=False)
    return calls


@pytest.mark.parametrize(
    ("arguments", "dtype", "seq_len"),
    [
        ([], "bfloat16", 2048),
        (["--device", "rtx4090"], "bfloat16", 2048),
        (["--device", "cpu"], "float32", 256),
        (["--device", "cpu", "--dtype", "bfloat16", "--seq-len", "64"], "bfloat16", 64),
    ],
)
def test_profile_defaults_are_smaller_on_the_cpu(asked, arguments, dtype, seq_len):
    assert call("profile", "org/Tiny-1B", *arguments).exit_code == 0
    ((model_id, options),) = asked
    assert model_id == "org/Tiny-1B"
    assert (options["dtype"], options["seq_len"]) == (dtype, seq_len)


def test_profile_writes_where_it_is_called_and_says_so(asked):
    result = call("profile", "org/Tiny-1B", "--microbatch-size", "1,2,4")
    path = Path("profiles/tiny-1b-rtx3090.json")
    assert load_profile(path) == PROFILE
    assert result.stdout.splitlines()[-1] == f"wrote {path}"
    assert "6 x layer" in result.stdout
    assert result.stderr == "measuring\n"
    assert asked[0][1]["microbatch_sizes"] == (1, 2, 4)


def test_profile_json_is_alone_on_stdout(asked):
    result = call("profile", "tiny", "-o", "here.json", "--json")
    assert artifact.from_json(result.stdout, ModelProfile, source="x") == PROFILE
    assert "wrote here.json" in result.stderr


@pytest.mark.parametrize(
    ("model", "stem"),
    [
        ("org/Model-1B", "Model-1B"),
        ("/data/models/tiny/", "tiny"),
        ("package.module:factory", "package.module-factory"),
        ("NVIDIA GeForce RTX 3090", "NVIDIA-GeForce-RTX-3090"),
        ("..", "model"),
    ],
)
def test_file_names_come_from_the_last_part_of_a_name(model, stem):
    assert file_stem(model) == stem


def test_a_folder_is_named_by_its_own_name(tmp_path):
    assert default_path(".", "cpu") == Path(f"profiles/{tmp_path.name}-cpu.json")


# --- solve --------------------------------------------------------------------


PIPELINE = ("--copies", "1", "--schedule", "1f1b")


def test_solve_writes_a_plan_that_names_its_profile(profile_path):
    result = call("solve", profile_path, "--gpus", "2", *PIPELINE)
    assert result.exit_code == 0, result.output
    plan = load_plan(Path("plan.json"))
    assert [len(stage.layers) for stage in plan.stages] == [3, 3]
    assert plan.profile.path == profile_path
    assert plan.profile.sha256 == sha256_of(Path(profile_path))
    assert result.stdout.splitlines()[-1] == "wrote plan.json"


def test_solve_json_is_the_plan_alone_on_stdout(profile_path):
    result = call(
        "solve", profile_path, "--gpus", "2", "--copies", "1", "-o", "a.json", "--json"
    )
    plan = artifact.from_json(result.stdout, Plan, source="x")
    assert plan == load_plan(Path("a.json"))
    assert "wrote a.json" in result.stderr


@pytest.mark.parametrize("cut", ["1,5", "0,1-5"])
def test_solve_takes_a_cut_by_hand(profile_path, cut):
    result = call("solve", profile_path, "--gpus", "2", "--layers-per-stage", cut)
    assert result.exit_code == 0, result.output
    plan = load_plan(Path("plan.json"))
    assert [len(stage.layers) for stage in plan.stages] == [1, 5]


def test_solve_takes_the_newest_profile_and_says_which(tmp_path):
    artifact.save(PROFILE, tmp_path / "profiles" / "old.json")
    artifact.save(PROFILE, tmp_path / "profiles" / "new.json")
    for age_s, name in ((100, "old.json"), (0, "new.json")):
        path = tmp_path / "profiles" / name
        os.utime(path, (1e9 - age_s, 1e9 - age_s))
    result = call("solve", "--gpus", "2")
    assert "using profiles/new.json" in result.stderr
    assert load_plan(Path("plan.json")).profile.path == "profiles/new.json"


def test_the_newest_is_the_one_made_last_wherever_the_files_come_from(tmp_path):
    # As in a fresh clone, whose samples are written later than they were made.
    for name, created in (("sample", "2026-12-02"), ("mine", "2026-12-03")):
        profile = dataclasses.replace(PROFILE, created=f"{created}T00:00:00+00:00")
        artifact.save(profile, tmp_path / "profiles" / f"{name}.json")
    os.utime(tmp_path / "profiles" / "mine.json", (1e9, 1e9))
    assert "using profiles/mine.json" in call("solve", "--gpus", "2").stderr


def test_what_is_no_profile_goes_by_when_it_was_written(tmp_path):
    artifact.save(PROFILE, tmp_path / "profiles" / "good.json")
    for name, text in (("half.json", '{"laye'), ("odd.json", '{"created": 3}')):
        path = tmp_path / "profiles" / name
        path.write_text(text, encoding="utf-8")
        os.utime(path, (1e9, 1e9))
    assert "using profiles/good.json" in call("solve", "--gpus", "2").stderr


def test_solve_without_any_profile_says_how_to_make_one():
    assert "planner profile MODEL" in the_error(call("solve", "--gpus", "2"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--gpus", "0"], "--gpus 0"),
        (["--gpus", "7", "--copies", "1"], "6 layers"),
        (["--gpus", "rtx9090:2"], "unknown card 'rtx9090'"),
        (["--gpus", "2", "--memory", "24G"], "'24G' is not a size"),
        (["--gpus", "2", "--link", "string"], "'string' is not a link"),
        (["--gpus", "2", "--layers-per-stage", "3,2"], "adds up to 5 layers"),
        (["--gpus", "2", "--layers-per-stage", "2,2,2"], "3"),
        (["--gpus", "2", "--microbatch-size", "0"], "microbatch"),
        (["--gpus", "2", "--global-batch-size", "0"], "--global-batch-size 0"),
    ],
)
def test_a_wish_that_cannot_be_is_one_line(profile_path, options, message):
    assert message in the_error(call("solve", profile_path, *options))
    assert not Path("plan.json").exists()


def test_what_does_not_fit_ends_with_three_and_says_what_is_missing(profile_path):
    # 3 M parameters at 16 bytes are 48 MB a stage.
    options = ["--gpus", "2", "--memory", "40MB", "--reserve", "0", "--json"]
    result = call("solve", profile_path, *options)
    the_error(result, exit_code=3)
    answer = json.loads(result.stdout)
    assert {*answer} == {"message", "shortfall_bytes", "stage", "would_fit"}
    assert answer["shortfall_bytes"] >= 48_000_000 - 40_000_000
    assert not Path("plan.json").exists()


def test_a_profile_that_is_none_is_refused_by_field():
    Path("bad.json").write_text('{"layers": [{"name": 3}]}', encoding="utf-8")
    error = the_error(call("solve", "bad.json", "--gpus", "2"))
    assert "bad.json is not a valid model profile" in error
    assert "layers[0].name" in error


# --- run ----------------------------------------------------------------------

RECORD = RunRecord(
    plan=small_plan(),
    status="finished",
    measured=Measured(
        step_s=1.5, tokens_per_s=10.0, stages=(MeasuredStage(), MeasuredStage())
    ),
)


@pytest.fixture
def runs(monkeypatch):
    """What `run` asks of the runtime, which answers at once."""
    calls = []

    def run_plan(plan, options, *, say):
        say("checked it")
        calls.append((plan, options))
        return RECORD

    monkeypatch.setattr("planner.runtime.run_plan", run_plan, raising=False)
    return calls


def test_run_hands_over_the_plan_and_the_options(runs, plan_path):
    result = call(
        *("run", plan_path, "--data", "text.txt", "--epochs", "2", "--lr", "0"),
        *("--lr-schedule", "cosine", "--no-shuffle", "--seed", "7"),
        *("--max-grad-norm", "0", "--init", "random", "--no-check"),
    )
    assert result.exit_code == 0, result.output
    ((plan, options),) = runs
    assert plan == small_plan()
    assert options.output_dir == Path("runs/plan")
    assert (options.data, options.steps, options.epochs) == ("text.txt", None, 2)
    assert (options.lr, options.lr_schedule, options.seed) == (0.0, "cosine", 7)
    assert (options.shuffle, options.init) == (False, "random")
    assert not options.check
    assert "1.00 s predicted, 1.50 s measured" in result.stdout
    assert result.stdout.splitlines()[-1] == "wrote runs/plan"


def test_run_json_is_the_record_alone_on_stdout(runs, plan_path):
    result = call("run", plan_path, "--json")
    assert artifact.from_json(result.stdout, RunRecord, source="x") == RECORD
    assert "wrote runs/plan" in result.stderr
    assert "checked it" in result.stderr


def test_run_refuses_a_folder_that_holds_another_run(runs, plan_path):
    Path("runs/plan").mkdir(parents=True)
    Path("runs/plan/run.json").write_text("{}", encoding="utf-8")
    error = the_error(call("run", plan_path))
    assert error == (
        "error: runs/plan holds another run; choose another --output-dir, or go on "
        "with --resume"
    )
    assert not runs


def test_run_refuses_a_profile_with_other_settings(runs, plan_path):
    artifact.save(PROFILE, Path("profiles/tiny.json"))
    error = the_error(call("run", plan_path))
    assert "dtype is float32, the plan has bfloat16" in error
    assert not runs


def test_run_refuses_options_that_contradict_each_other(runs, plan_path):
    error = the_error(call("run", plan_path, "--steps", "3", "--epochs", "1"))
    assert "--steps 3 and --epochs 1" in error


def test_a_missing_plan_is_one_line(runs):
    error = the_error(call("run", "nowhere.json"))
    assert "cannot read the plan nowhere.json" in error
    assert error.endswith("make one with planner solve --gpus N")


# --- endings ------------------------------------------------------------------


def ending_with(monkeypatch, error: BaseException):
    def run_plan(plan, options, *, say):
        raise error

    monkeypatch.setattr("planner.runtime.run_plan", run_plan, raising=False)


def test_an_error_of_several_lines_becomes_one(monkeypatch, plan_path):
    ending_with(monkeypatch, RunError("stage 1 failed:\n  no memory\n\n  try B"))
    error = the_error(call("run", plan_path))
    assert error == "error: stage 1 failed: no memory; try B"


def test_an_interruption_ends_with_130(monkeypatch, plan_path):
    ending_with(monkeypatch, KeyboardInterrupt())
    result = call("run", plan_path)
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "interrupted"


def test_a_bug_keeps_its_traceback(monkeypatch, plan_path):
    ending_with(monkeypatch, ZeroDivisionError("a bug"))
    result = call("run", plan_path)
    assert isinstance(result.exception, ZeroDivisionError)


# --- report and demo ----------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "out_dir"),
    [
        (["plan.json"], "reports/plan"),
        (["runs/first"], "reports/first"),
        (["plan.json", "-o", "there"], "there"),
    ],
)
def test_report_says_what_it_wrote(monkeypatch, arguments, out_dir):
    monkeypatch.setattr(
        "planner.report.write_report",
        lambda source, folder, num_tokens: folder / f"{source.stem}.html",
        raising=False,
    )
    result = call("report", *arguments)
    stem = Path(arguments[0]).stem
    assert result.stdout == f"wrote {Path(out_dir) / stem}.html\n"
