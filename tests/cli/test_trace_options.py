"""Traces and generated arrivals on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.run import run
from tests.inputs.traces import samples


@pytest.fixture
def swf(tmp_path: Path) -> Path:
    file = tmp_path / "t.swf"
    file.write_text(samples.SWF)
    return file


def test_a_trace_is_replayed_and_what_is_lost_is_printed(swf: Path) -> None:
    found = run("simulate", "--replay", str(swf), "-o", "json")
    assert found.code == 0
    summary = json.loads(found.out)
    assert (summary["pods"], summary["placed"]) == (4, 4)
    assert any(note.startswith("trace imported: Standard") for note in summary["notes"])


def test_arrivals_imply_a_replay_and_differ_by_seed(swf: Path) -> None:
    how = ("simulate", str(swf), "--arrivals", "poisson,rate=60,jobs=12", "-o", "json")
    first, again, other = (
        json.loads(run(*how, "--seed", seed).out)["waits_s"] for seed in ("1", "1", "2")
    )
    assert first == again
    assert first != other


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--arrivals", "posson"], "error: --arrivals: Invalid value: 'posson'"),
        (["--trace-format", "slurm"], "must be one of: swf, pai-2020"),
        (["--trace-format", "philly"], "t.swf"),
    ],
)
def test_options_that_do_not_fit(swf: Path, options: list[str], message: str) -> None:
    found = run("simulate", str(swf), *options)
    assert found.code == 2
    assert message in found.err


def test_a_format_needs_files() -> None:
    found = run("simulate", "--trace-format", "swf")
    assert found.code == 2
    assert "--trace-format can be used with files only" in found.err
