"""Commands of the documentation are run with the files that their page gives: none is refused.

Those that need a cluster, a server or files of the reader are left out. Pages whose output is
compared have tests of their own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.run import run
from tests.tidy.test_doc_files import (
    COMMAND,
    READERS_OWN,
    files_of_blocks,
    files_read,
    folders_named,
    words,
)

ROOT = Path(__file__).parents[2]
PAGES = {
    "README.md": 3,
    "docs/changes.md": 7,
    "docs/kai-queues.md": 6,
    "docs/kueue-queues.md": 7,
    "docs/plugins.md": 4,
    "docs/pod-groups.md": 2,
    "docs/policy.md": 3,
    "docs/queue-audit.md": 2,
    "docs/simulate.md": 4,
    "docs/volcano-queues.md": 2,
    "docs/what-if.md": 7,
}
"""Page -> commands that are run."""
SERVES = {"up", "run", "extender", "demo", "top", "status", "evaluate", "import"}
ASKS_A_CLUSTER = {"--context", "--kubeconfig", "--web"}


def commands(page: str) -> Iterator[tuple[str, list[Path]]]:
    """Commands that need nothing else, and the folders that the page has named before each."""
    for found in COMMAND.finditer(page):
        parts = words(found[1])
        if not parts[0].endswith("stowplan") or parts[1] in SERVES or ASKS_A_CLUSTER & {*parts}:
            continue
        given = {name for name, _ in files_of_blocks(page)}
        folders = folders_named(page[: found.start()])
        names = [*files_read(found[1])]
        is_known = all(
            name in given
            or name.startswith("examples/")
            or any((folder / name).exists() for folder in folders)
            for name in names
        )
        if names and is_known and not {*names} & {*READERS_OWN}:
            yield found[1], folders


def ran_of(page: str) -> int:
    """Run the commands of a page in the working directory; how many there are. A command may
    answer no (exit code 1); one that is refused or has an error fails."""
    for name, content in files_of_blocks(page):
        Path(name).write_text(content)
    n_run = 0
    for command, folders in commands(page):
        for name in files_read(command):
            for folder in folders:
                place = folder / name
                if place.is_dir():
                    shutil.copytree(place, name, dirs_exist_ok=True)
                elif place.is_file():
                    shutil.copy(place, name)
        piped = words(command)
        ran = run(*piped[1 : piped.index("|") if "|" in piped else None])
        assert ran.code in (0, 1), (command, ran)
        assert ran.out, (command, ran)
        n_run += 1
    return n_run


@pytest.mark.parametrize("name", PAGES)
def test_commands_of_a_page_are_answered(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("examples").symlink_to(ROOT / "examples")
    assert ran_of((ROOT / name).read_text()) == PAGES[name]


def test_the_smallest_changes_are_those_that_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = (ROOT / "docs" / "changes.md").read_text()
    ((name, content),) = files_of_blocks(page)
    Path(name).write_text(content)
    text = page.partition("```\nSmallest changes that let it run\n")[2].partition("```")[0]
    assert text
    assert text in run("explain", "deploy/web", name).out


def test_control_a_command_that_is_refused_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    block = '```yaml title="{}"\nkind: Node\napiVersion: v1\nmetadata: {{name: n}}\n```\n'
    page = block.format("a.yaml") + "\n    stowplan explain gone a.yaml\n"
    with pytest.raises(AssertionError, match="not found"):
        ran_of(page)
