"""docs/eta.md: what its commands print."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from tests.cli.run import check_one_line, run

PAGE = Path(__file__).parents[2] / "docs" / "eta.md"
FEW = ("--draws", "2")
BLOCK = re.compile(r"```console\n\$ (stowplan [^\n]*)\n(.*?)```", re.DOTALL)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    text = PAGE.read_text().split("```yaml\n", 1)[1].split("```")[0]
    (tmp_path / "dump.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_page_shows_what_is_printed(here: Path) -> None:
    page = PAGE.read_text()
    wrong = []
    for command, before in BLOCK.findall(page):
        printed = run(*command.split()[1:]).out
        if printed != before:
            wrong.append(command)
            page = page.replace(f"$ {command}\n{before}```", f"$ {command}\n{printed}```")
    if os.environ.get("STOWPLAN_GOLDEN"):
        PAGE.write_text(page)
        return
    assert not wrong


def test_exit_codes_and_outputs(here: Path) -> None:
    assert run("eta", "report", "-f", "dump.yaml", *FEW).code == 0
    assert run("eta", "huge", "-f", "dump.yaml", *FEW).code == 1
    assert run("eta", "--all", "dump.yaml", "-o", "name", *FEW).out.split() == [
        "pod/report", "pod/whole", "pod/huge",
    ]  # fmt: skip
    assert (
        '"apiVersion": "stowplan.dev/eta/v1"' in run("eta", "report", "dump.yaml", "-o", "json").out
    )
    assert "apiVersion: stowplan.dev/eta/v1" in run("eta", "report", "dump.yaml", "-o", "yaml").out
    ran = run("eta", "job/nightly", "dump.yaml", "-o", "wide", *FEW).out
    assert "pod default/nightly-4 is running since 2026-03-01T10:00:00Z" in ran
    assert "pod default/nightly-1 has finished at 2026-03-01T08:30:00Z" in ran


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (
            "repord dump.yaml",
            'pods "repord" not found in namespace "default" (did you mean "report"?)',
        ),
        ("job/nigtly dump.yaml", 'no pods found for Job "nigtly" in namespace "default" (did you'),
        ("job/nigtly dump.yaml", '(did you mean "job/nightly"?)'),
        ("pg/x dump.yaml", 'podgroups "x" not found in namespace "default"'),
        ("other/report dump.yaml", '"other" (did you mean "default/report"?)'),
        ("report dump.yaml --now soon", 'invalid argument "soon" for "--now" flag: must be a time'),
        ("report dump.yaml --now 2026-01-01T00:00:00", "must be a time such as 2026-01-31T12"),
        ("report dump.yaml --interval 60-90", 'invalid argument "60-90" for "--interval" flag'),
        ("-f dump.yaml", "JOB or POD is required, or --all"),
    ],
)  # fmt: skip
def test_bad_input(here: Path, words: str, text: str) -> None:
    ran = run("eta", *words.split())
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err


def test_an_invalid_annotation_is_one_line_that_names_the_pod(here: Path) -> None:
    dump = here / "dump.yaml"
    dump.write_text(dump.read_text().replace('run-seconds: "600"', 'run-seconds: "-600"'))
    ran = run("eta", "whole", "dump.yaml")
    assert ran.code == 2
    assert len(ran.err.splitlines()) == 1
    assert "pod default/report: metadata.annotations[stowplan.dev/run-seconds]" in ran.err


def test_without_pending_pods(here: Path) -> None:
    assert run("eta", "--all", "-n", "empty", "dump.yaml").out == "No pending pods.\n"


@pytest.mark.parametrize("year", ["0001", "1969", "2200", "9999"])
def test_a_now_that_virtual_time_cannot_hold(here: Path, year: str) -> None:
    ran = run("eta", "report", "dump.yaml", "--now", f"{year}-12-31T00:00:00Z")
    assert ran.code == 2
    assert '"--now" flag: must be a time from 1970 to 2199' in ran.err


def test_pods_that_show_a_time_beyond_virtual_time(here: Path) -> None:
    text = Path("dump.yaml").read_text().replace("2026-03-01T10:12:00Z", "2400-01-01T00:00:00Z")
    Path("dump.yaml").write_text(text)
    ran = run("eta", "report", "dump.yaml")
    check_one_line(
        ran, "now: Invalid value: 2400-01-01T00:00:00Z: expected a time from 1970 to 2199"
    )
