"""docs/recording.md shows what its commands print. STOWPLAN_GOLDEN=1 rewrites it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.test_tutorials import played

PAGE = Path(__file__).parents[2] / "docs" / "recording.md"


def test_commands_print_what_the_page_shows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    page = PAGE.read_text()
    now = played(page)
    if os.environ.get("STOWPLAN_GOLDEN"):
        PAGE.write_text(now)
        return
    assert now == page
