"""The import contracts of .importlinter, seen to catch what they forbid.

The real tree is held to them by `make check`; here a skeleton with the same rooms is, so that a
contract which has come to allow everything is noticed.
"""

import configparser
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.tidy import tree

CONTRACTS = tree.ROOT / ".importlinter"
FLOORS = "Floors: imports point down"
WORLDLY = {"cli", "driver", "sim"}
PURE = "Below the simulator: no clock, dice, threads, sockets, files or log"


def floors() -> list[list[str]]:
    """The rooms as .importlinter lists them, top floor first."""
    parser = configparser.ConfigParser()
    parser.read_string(tree.read(CONTRACTS))
    lines = parser["importlinter:contract:floors"]["layers"].split("\n")
    return [[room.strip() for room in line.split("|")] for line in lines if line.strip()]


def skeleton(folder: Path) -> Path:
    """A package of empty rooms in `folder`, under the project's contracts."""
    shutil.copy(CONTRACTS, folder)
    package = folder / "stowplan"
    for room in (room for floor in floors() for room in floor):
        (package / room).mkdir(parents=True)
        (package / room / "__init__.py").touch()
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
    assert f"{FLOORS} KEPT" in report
    assert f"{PURE} KEPT" in report


@pytest.mark.parametrize(
    ("room", "line", "contract"),
    [
        ("columns", "import stowplan.plugins", FLOORS),
        ("objects", "def late():\n    from stowplan import framework", FLOORS),
        ("cycle", "import stowplan.plugins", FLOORS),
        ("framework", "import time", PURE),
        ("plugins", "from os import path", PURE),
        ("testing", "import random", PURE),
    ],
)
def test_a_planted_import_is_caught(tmp_path: Path, room: str, line: str, contract: str) -> None:
    (skeleton(tmp_path) / room / "planted.py").write_text(line)
    code, report = lint(tmp_path)
    assert code == 1, report
    assert f"{contract} BROKEN" in report


def test_an_undeclared_room_is_caught(tmp_path: Path) -> None:
    (skeleton(tmp_path) / "attic.py").touch()
    code, report = lint(tmp_path)
    assert code == 1, report
    assert f"{FLOORS} BROKEN" in report


def test_every_room_below_the_simulator_is_held_pure() -> None:
    parser = configparser.ConfigParser()
    parser.read_string(tree.read(CONTRACTS))
    pure = parser["importlinter:contract:pure"]["source_modules"].split()
    below = [f"stowplan.{room}" for floor in floors() for room in floor]
    assert sorted(pure) == sorted(set(below) - {f"stowplan.{room}" for room in WORLDLY})
