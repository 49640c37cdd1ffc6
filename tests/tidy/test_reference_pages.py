"""The reference pages that the site's build makes from code."""

from __future__ import annotations

import re
from pathlib import Path

import click
import pytest

from stowplan.assembly.in_tree import IN_TREE
from stowplan.cli.main import COMMANDS
from tests.tidy import tree
from tests.tidy.test_site import script

reference = script("reference_pages")
files = script("repository_files")
METRICS = re.compile(r"^\| `([a-z][a-z0-9_]+)` \| (\w+) \|", re.MULTILINE)


def test_every_command_has_its_options() -> None:
    page = reference.commands()
    for name in COMMANDS:
        assert f"## stowplan {name}\n" in page
    assert "| `--replay` |" in page
    assert "## stowplan config check\n" in page


def test_help_keeps_the_lines_of_examples() -> None:
    command = click.Command("x", help="Does it.\n\n\b\nExamples:\n  stowplan x\n")
    page = reference._command("stowplan x", command, click.Context(command))
    assert "Does it." in page
    assert "~~~~text\nExamples:\n  stowplan x\n~~~~" in page


def test_configuration_has_every_field_and_every_plugin_with_arguments() -> None:
    page = reference.configuration()
    for field in ("leaderElection", "podMaxBackoffSeconds", "defaultConstraints", "schedulePeriod"):
        assert f"| `{field}` |" in page, field
    for name, plugin in IN_TREE.items():
        assert hasattr(plugin, "Args") is False or name in page, name
    assert "integer (≥ 0, ≤ 100)" in page
    anchors = re.findall(r"\{ #([\w-]+) \}", page)
    assert len(anchors) == len(set(anchors))
    linked = set(re.findall(r"\(#([\w-]+)\)", page))
    assert linked <= set(anchors)


def test_metrics_have_a_kind_and_a_help() -> None:
    page = reference.metrics()
    kinds = dict(METRICS.findall(page))
    assert kinds["scheduler_pending_pods"] == "gauge"
    assert kinds["scheduler_schedule_attempts_total"] == "counter"
    assert kinds["scheduler_scheduling_attempt_duration_seconds"] == "histogram"
    assert kinds["volcano_unschedule_job_count"] == "gauge"
    assert not re.search(r"\|\s*\|$", page, re.MULTILINE)


def test_decisions_are_listed() -> None:
    page = reference.decisions(tree.ROOT / "docs" / "decisions")
    assert "- [0001](0001-calls-by-name.md): Plugin methods are called by parameter name\n" in page


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x = 1\n")
    (tmp_path / "README.md").write_text(
        "# R\n[a](src/a.py) [page](docs/page.md) ![i](docs/i.svg)\n"
    )
    return tmp_path


def test_files_of_the_repository_become_pages(repository: Path) -> None:
    made = files.pages(repository, {"page.md": "[a](../src/a.py) [r](../README.md)"})
    assert set(made) == {"source/src/a.py.md", "project/README.md"}
    assert "x = 1\n" in made["source/src/a.py.md"]


def test_links_follow(repository: Path) -> None:
    page = files.with_links(repository, "concepts/page.md", "[a](../../src/a.py) [b](other.md)")
    assert page == "[a](../source/src/a.py.md) [b](other.md)"
    root = files.with_links(repository, "project/README.md", (repository / "README.md").read_text())
    assert root == "# R\n[a](../source/src/a.py.md) [page](../page.md) ![i](../i.svg)\n"


def test_code_is_left_alone(repository: Path) -> None:
    text = "```\n[a](../src/a.py)\n```\n[a](../src/a.py)\n"
    assert files.with_links(repository, "page.md", text) == (
        "```\n[a](../src/a.py)\n```\n[a](source/src/a.py.md)\n"
    )
