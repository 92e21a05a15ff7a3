"""The rules of the house that a machine can check."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import planner

ROOT = Path(__file__).parents[1]
PACKAGE = Path(planner.__file__).parent
SOURCES = sorted(PACKAGE.rglob("*.py"))

# Who may import whom: each row only what stands above it, and never more than
# it needs. The artifacts are plain data, so everything but they may know them.
WORDS = {"errors", "units", "table", "versions", "artifact"}
ARTIFACTS = WORDS | {"catalogue", "cards", "model_profile", "plan", "run_record"}
PURE = ARTIFACTS | {"cluster", "stage_links", "optimizers", "schedule", "plan_check"}
PURE |= {"memory", "simulate"}
TEXTS = {"cards_text", "links_text", "plan_profile", "plan_text", "run_text"}
MAY_IMPORT = {
    "errors": set(),
    "table": set(),
    "versions": set(),
    "units": {"errors"},
    "artifact": {"errors"},
    "catalogue": WORDS,
    "cards": WORDS | {"catalogue"},
    "model_profile": WORDS,
    "schedule": WORDS,
    "plan": WORDS | {"model_profile", "schedule"},
    "run_record": WORDS | {"plan"},
    **dict.fromkeys(sorted(TEXTS | {"stage_links", "optimizers"}), ARTIFACTS),
    "cluster": ARTIFACTS | {"stage_links"},
    "plan_check": ARTIFACTS | {"schedule"},
    "memory": ARTIFACTS | {"cluster", "optimizers", "schedule"},
    "simulate": ARTIFACTS | {"cluster", "schedule"},
    "compare_text": ARTIFACTS | {"plan_text"},
    "least_cards": ARTIFACTS | {"memory", "optimizers"},
    "profile_text": ARTIFACTS | {"memory", "optimizers", "least_cards"},
    "calibrate": ARTIFACTS
    | {"stage_links", "schedule", "plan_check", "plan_profile", "memory"},
    "solve": PURE,
    "chain": ARTIFACTS,
    "rounded_adamw": WORDS | {"optimizers"},
    "stage_optimizer": WORDS | {"optimizers", "rounded_adamw"},
    "measure": ARTIFACTS | {"optimizers", "chain", "stage_optimizer"},
    "runtime": ARTIFACTS
    | {"schedule", "plan_check", "chain", "stage_optimizer", "measure"},
    "report": PURE | TEXTS | {"solve"},
    "demo": PURE | TEXTS | {"solve", "chain", "measure", "runtime", "report"},
    "cli": PURE
    | TEXTS
    | {
        "profile_text",
        "compare_text",
        "calibrate",
        "solve",
        "chain",
        "measure",
        "runtime",
        "report",
        "demo",
    },
    "__main__": {"cli"},
}
HOME = {
    "pulp": {"solve"},
    "matplotlib": {"report"},
    "pandas": {"report"},
    "jinja2": {"report", "runtime"},
    "torch": {"chain", "rounded_adamw", "stage_optimizer", "measure", "runtime"},
    "transformers": {"chain", "measure", "runtime"},
    "safetensors": {"chain", "runtime"},
    "msgspec": {"artifact"},
    "click": {"cli"},
    "tqdm": {"cli"},
}
HEAVY = ["torch", "pulp", "matplotlib", "pandas", "transformers", "numpy", "msgspec"]


def part_of(path: Path) -> str:
    """`planner/solve/columns.py` belongs to the part `solve`."""
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imported_modules(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, "imports are absolute"
            if node.module == "planner":
                yield from (f"planner.{alias.name}" for alias in node.names)
            else:
                yield node.module


def imported_parts(path: Path) -> set[str]:
    names = imported_modules(parse(path))
    parts = {name.split(".")[1] for name in names if name.startswith("planner.")}
    return parts - {part_of(path), "__version__"}


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def short(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


every_source = pytest.mark.parametrize("path", SOURCES, ids=short)


# --- imports ------------------------------------------------------------------


def test_the_table_of_imports_goes_one_way():
    above = set()
    for part, allowed in MAY_IMPORT.items():
        assert allowed <= above, f"{part} may import {allowed - above} from below"
        above.add(part)


def test_every_part_is_in_the_table():
    assert {part_of(path) for path in SOURCES} - {"__init__"} <= set(MAY_IMPORT)


@every_source
def test_imports_go_one_way(path):
    allowed = MAY_IMPORT.get(part_of(path), set())
    assert imported_parts(path) <= allowed


@every_source
def test_heavy_libraries_have_one_home(path):
    for name in imported_modules(parse(path)):
        library = name.split(".")[0]
        assert part_of(path) in HOME.get(library, {part_of(path)}), library


@pytest.mark.parametrize("arguments", [["--help"], ["solve", "--help"], ["cards"]])
def test_the_command_line_answers_without_heavy_libraries(arguments):
    code = (
        "import sys; from planner.cli import main; "
        f"main({arguments!r}, standalone_mode=False); "
        f"print('loaded:', [m for m in {HEAVY!r} if m in sys.modules])"
    )
    allowed = ["msgspec"] if arguments == ["cards"] else []
    found = subprocess.run(
        [sys.executable, "-c", code],
        cwd=PACKAGE.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    assert found.stdout.splitlines()[-1] == f"loaded: {allowed}"


# --- words --------------------------------------------------------------------


@every_source
def test_every_module_says_what_it_is(path):
    assert ast.get_docstring(parse(path))


def public_things(tree: ast.AST) -> Iterator[ast.AST]:
    """Public classes and functions, and the public methods of such classes."""
    for node in ast.iter_child_nodes(tree):
        named = isinstance(node, ast.FunctionDef | ast.ClassDef)
        if named and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from public_things(node)


def decorators(node: ast.AST) -> str:
    return " ".join(map(ast.unparse, node.decorator_list))


def missing_sections(node: ast.AST) -> set[str]:
    """Which parts the docstring of a class or function lacks."""
    text = ast.get_docstring(node)
    if not text:
        return {"a docstring"}
    if "click." in decorators(node):
        return set()  # its docstring is its --help
    wanted = set()
    if isinstance(node, ast.ClassDef):
        if any(isinstance(entry, ast.AnnAssign) for entry in node.body):
            wanted.add("Attributes:")
    elif "property" not in decorators(node):
        arguments = {a.arg for a in node.args.args + node.args.kwonlyargs}
        if arguments - {"self", "cls"}:
            wanted.add("Args:")
        if node.returns is not None and ast.unparse(node.returns) != "None":
            wanted.add("Returns:" if "Yields:" not in text else "Yields:")
        if any(isinstance(entry, ast.Raise) and entry.exc for entry in ast.walk(node)):
            wanted.add("Raises:")
    return {section for section in wanted if section not in text}


@every_source
def test_every_public_thing_is_documented(path):
    lacking = {
        node.name: missing
        for node in public_things(parse(path))
        if (missing := missing_sections(node))
    }
    assert not lacking


@every_source
def test_no_prints_and_no_globals(path):
    for node in ast.walk(parse(path)):
        assert not isinstance(node, ast.Global), f"global in line {node.lineno}"
        if isinstance(node, ast.Call):
            assert ast.unparse(node.func) != "print", f"print in line {node.lineno}"


def code_lines(node: ast.FunctionDef) -> int:
    """Lines of a function without its docstring."""
    docstring = ast.get_docstring(node, clean=False) or ""
    return node.end_lineno - node.lineno - docstring.count("\n")


@every_source
def test_a_function_fits_a_screen(path):
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.FunctionDef) and "click." not in decorators(node):
            assert code_lines(node) < 60, node.name


@every_source
def test_no_module_shadows_the_standard_library(path):
    assert path.stem not in {"profile", "types", "copy"}


# --- files --------------------------------------------------------------------


def committed_files() -> list[Path]:
    """What git tracks; in a copy without git, what is there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=False
    )
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.decode().split("\0") if name]
    ignored = (ROOT / ".gitignore").read_text().replace("/", "").split()
    return [path for path in ROOT.rglob("*") if not set(path.parts) & set(ignored)]


def test_no_committed_file_is_larger_than_500_kb():
    sizes = {path: path.stat().st_size for path in committed_files() if path.is_file()}
    assert {path: size for path, size in sizes.items() if size > 500_000} == {}


def test_the_package_tells_that_it_is_typed():
    assert (PACKAGE / "py.typed").exists()


@pytest.mark.parametrize(
    "command",
    [
        "python3 -m venv .venv && .venv/bin/pip install . && .venv/bin/planner demo",
        ".venv/bin/pip install '.[dev]' && .venv/bin/pytest",
    ],
)
def test_ci_runs_the_commands_of_the_readme(command):
    assert command in (ROOT / "README.md").read_text(encoding="utf-8")
    assert command in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
