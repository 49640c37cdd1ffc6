"""The import contracts of .importlinter, seen to catch what they forbid.

The real tree is held to them by `make check`; here a skeleton with the same packages is, so that a
contract which has come to allow everything is noticed.
"""

import configparser
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy import tree

CONTRACTS = tree.ROOT / ".importlinter"
LAYERS = "Layers: imports point down"
IMPURE = {
    "cli",
    "examples",
    "conformance",
    "experiments",
    "benchmarks",
    "forecast",
    "web",
    "driver",
    "simulation",
    "insight",
    "inputs",
    "recording",
}
PURE = "Below driver and simulation: no clock, random source, threads, sockets, files or log"


def layers() -> list[list[str]]:
    """The packages as .importlinter lists them, top layer first."""
    parser = configparser.ConfigParser()
    parser.read_string(tree.read(CONTRACTS))
    lines = parser["importlinter:contract:layers"]["layers"].split("\n")
    return [[name.strip() for name in line.split("|")] for line in lines if line.strip()]


def skeleton(folder: Path) -> Path:
    """A package of empty packages in `folder`, under the project's contracts."""
    text = tree.read(CONTRACTS)
    assert "ignore_imports" not in text, "the layers have no exceptions"
    (folder / CONTRACTS.name).write_text(text)
    package = folder / "stowplan"
    for name in (name for layer in layers() for name in layer):
        (package / name).mkdir(parents=True)
        (package / name / "__init__.py").touch()
    (package / "__init__.py").touch()
    return package


def lint(folder: Path) -> tuple[int, str]:
    """Exit code and report of import-linter on the skeleton in `folder`."""
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [program, "--no-cache", "--no-logo"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout + done.stderr


def test_a_clean_skeleton_keeps_every_contract(tmp_path: Path) -> None:
    skeleton(tmp_path)
    code, report = lint(tmp_path)
    assert code == 0, report
    assert f"{LAYERS} KEPT" in report
    assert f"{PURE} KEPT" in report


@pytest.mark.parametrize(
    ("name", "line", "contract"),
    [
        ("columns", "import stowplan.plugins", LAYERS),
        ("objects", "def late():\n    from stowplan import framework", LAYERS),
        ("cycle", "import stowplan.plugins", LAYERS),
        ("framework", "import time", PURE),
        ("plugins", "from os import path", PURE),
        ("testing", "import random", PURE),
    ],
)
def test_a_planted_import_is_caught(tmp_path: Path, name: str, line: str, contract: str) -> None:
    (skeleton(tmp_path) / name / "planted.py").write_text(line)
    code, report = lint(tmp_path)
    assert code == 1, report
    assert f"{contract} BROKEN" in report


def test_an_undeclared_name_is_caught(tmp_path: Path) -> None:
    (skeleton(tmp_path) / "attic.py").touch()
    code, report = lint(tmp_path)
    assert code == 1, report
    assert f"{LAYERS} BROKEN" in report


def test_every_name_below_the_simulator_is_held_pure() -> None:
    parser = configparser.ConfigParser()
    parser.read_string(tree.read(CONTRACTS))
    pure = parser["importlinter:contract:pure"]["source_modules"].split()
    below = [f"stowplan.{name}" for layer in layers() for name in layer]
    assert sorted(pure) == sorted(set(below) - {f"stowplan.{name}" for name in IMPURE})
