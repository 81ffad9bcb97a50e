"""The package as a whole: light to import, one version, typed, and layered as it was designed."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import version
from pathlib import Path

import pytest

import lookright

PACKAGE = Path(lookright.__file__).parent
REPOSITORY = Path(__file__).parents[1]
HEAVY = {"torch", "transformers", "pyarrow", "PIL", "matplotlib"}

#: A module imports only from those above it, or of its own line.
LAYERS = (
    "errors",
    "files options progress recent",
    "instance",
    "identifiers",
    "prompts",
    "settings",
    "pixels",
    "images",
    "evidence",
    "kinds",
    "shards",
    "store",
    "collect",
    "candidates",
    "head softened sampling",
    "attention",
    "spans",
    "families",
    "processors vision",
    "encoding",
    "backbone",
    "selfcheck model towers",
    "presets",
    "observations",
    "calibration calibration_file calibration_text",
    "runs",
    "npz",
    "recordings",
    "methods",
    "metrics",
    "baselines",
    "evaluation",
    "scoring",
    "adapt",
    "benchmarks",
    "gather",
    "samples",
    "job",
    "calibrating",
    "plans",
    "fill",
    "trials",
    "runner",
    "comparison",
    "experiments",
    "report",
    "choice choice_text",
    "selector_file",
    "selector",
    "demo",
    "machine tiny",
    "capacity",
    "forecast",
    "doctor",
    "asking",
    "console",
    "evaluate_cli benchmark_cli",
    "cli",
)
LEVEL = {name: level for level, names in enumerate(LAYERS) for name in names.split()}


def run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *command], capture_output=True, text=True, check=False)


def unit(path: Path) -> str:
    """The top-level module or subpackage a file belongs to; "" for the package's own __init__."""
    first = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
    return "" if first == "__init__" else first


def imported_units(source: str, inside: str = "lookright") -> set[str]:
    """The units of lookright that source in the package `inside` imports, wherever it does."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = inside.split(".")[: len(inside.split(".")) - node.level + 1]
                base = ".".join([*parents, base]).rstrip(".")
            modules = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        found |= {m.split(".")[1] for m in modules if m.startswith("lookright.")}
    homes = {lookright._HOME.get(name, name) for name in found}  # Model -> model
    return homes & LEVEL.keys()


def files_by_unit() -> dict[str, list[Path]]:
    found: dict[str, list[Path]] = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        found.setdefault(unit(path), []).append(path)
    return found


@pytest.mark.parametrize("module", ["calibration", "methods", "metrics", "scoring", "cli"])
def test_the_mathematics_and_the_command_line_load_nothing_heavy(module: str) -> None:
    assert not HEAVY & loaded_by(f"import lookright.{module}")


def test_importing_the_package_loads_no_other_package_at_all() -> None:
    assert not (HEAVY | {"numpy", "safetensors", "rich", "typer"}) & loaded_by("import lookright")


def loaded_by(statement: str) -> set[str]:
    """The modules an interpreter of its own has loaded after this statement."""
    done = run("-c", f"import sys; {statement}; print(*sys.modules)")
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("name", lookright.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(lookright, name) is not None
    assert name in dir(lookright)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        lookright.nothing  # noqa: B018


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    assert "version" not in project
    assert version("lookright") == lookright.__version__


def test_a_built_wheel_holds_every_module_and_says_that_it_is_typed(tmp_path: Path) -> None:
    pytest.importorskip("hatchling", reason="the build backend is not installed here")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    assert wheel.name == f"lookright-{lookright.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        shipped = set(archive.namelist())
    modules = {p.relative_to(PACKAGE.parent).as_posix() for p in PACKAGE.rglob("*.py")}
    assert modules | {"lookright/py.typed"} <= shipped


def test_every_module_has_its_place_in_the_order() -> None:
    assert files_by_unit().keys() - {""} <= LEVEL.keys()


@pytest.mark.parametrize("name", [n for n in files_by_unit() if n])
def test_a_module_imports_only_from_modules_above_it(name: str) -> None:
    for path in files_by_unit()[name]:
        inside = ".".join(["lookright", *path.relative_to(PACKAGE).parent.parts])
        below = {u for u in imported_units(path.read_text(), inside) if LEVEL[u] > LEVEL[name]}
        assert not below, f"{path.relative_to(PACKAGE)} imports from below it: {sorted(below)}"


@pytest.mark.parametrize(
    ("source", "inside"),
    [
        ("import lookright.cli", "lookright"),
        ("from lookright.cli import main", "lookright"),
        ("from lookright import cli", "lookright"),
        ("from . import cli", "lookright"),
        ("from .cli import main", "lookright"),
        ("from ..cli import main", "lookright.methods"),
        ("def later():\n    from lookright.cli import main", "lookright"),
    ],
)
def test_an_import_is_seen_however_it_is_written(source: str, inside: str) -> None:
    assert imported_units(source, inside) == {"cli"}


def test_an_import_of_a_public_name_is_an_import_of_its_module() -> None:
    assert imported_units("from lookright import EvidenceSettings") == {"settings"}


def test_the_command_says_its_version() -> None:
    done = run("-m", "lookright.cli", "--version")
    assert done.returncode == 0
    assert done.stdout == f"lookright {lookright.__version__}\n"


@pytest.mark.parametrize("arguments", [["frobnicate"], ["--frobnicate"]])
def test_an_unknown_command_or_option_ends_with_exit_code_2(arguments: list[str]) -> None:
    done = run("-m", "lookright.cli", *arguments)
    assert done.returncode == 2
    assert "frobnicate" in done.stderr
    assert "Traceback" not in done.stderr
