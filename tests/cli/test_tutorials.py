"""The tutorials: their files are written, their commands run, and their output is what they show.

STOWPLAN_GOLDEN=1 writes the output into the pages; the diff is the review.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.run import run

FOLDER = Path(__file__).parents[2] / "docs" / "tutorials"
PAGES = ("first-policy.md", "first-gang.md", "replay.md", "drain-a-zone.md", "gpu-claims.md")
FILE = re.compile(r'```\w+ title="([\w.-]+)"\n(.*?)```', re.DOTALL)
CONSOLE = re.compile(r"(```console\n)(.*?)(```)", re.DOTALL)
SPEED = re.compile(r"[\d,]+ pods/s")
READING = {"cat", "grep", "head", "ls", sys.executable}


def output(command: str) -> str:
    """What a command of a page prints; the speed, which differs every time, as `...`."""
    name, *arguments = shlex.split(command)
    if name == "stowplan":
        ran = run(*arguments)
        assert ran.code in (0, 1), ran
        text = ran.out + ran.err
    else:
        name = sys.executable if name == "python" else name
        assert name in READING, command
        text = subprocess.run([name, *arguments], check=True, capture_output=True, text=True).stdout
    lines = [line.rstrip() for line in SPEED.sub("... pods/s", text).splitlines()]
    return "".join(f"{line}\n" for line in lines)


def played(page: str) -> str:
    """A page with the output of its commands, which are run in the working directory."""
    for name, text in FILE.findall(page):
        Path(name).write_text(text)

    def answered(block: re.Match[str]) -> str:
        commands = [line for line in block[2].splitlines() if line.startswith("$ ")]
        assert commands, f"a console block without a command: {block[0]}"
        return block[1] + "".join(f"{one}\n{output(one[2:])}" for one in commands) + block[3]

    return CONSOLE.sub(answered, page)


@pytest.mark.parametrize("name", PAGES)
def test_commands_print_what_the_page_shows(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    page = (FOLDER / name).read_text()
    now = played(page)
    if os.environ.get("STOWPLAN_GOLDEN"):
        (FOLDER / name).write_text(now)
        return
    assert now == page


def test_control_another_output_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = '```text title="a.txt"\none\n```\n```console\n$ cat a.txt\ntwo\n```\n'
    assert played(page) == page.replace("two", "one")
