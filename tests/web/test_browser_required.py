"""Where a browser is required, a skipped test of the page fails."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TEXT = """
import pytest
def test_skipped():
    pytest.skip("no chromium")

@pytest.mark.other_browser
def test_other():
    pytest.skip("no firefox")

def test_passes():
    pass
"""


@pytest.mark.parametrize(
    ("required", "found"), [("", "1 passed, 2 skipped"), ("1", "1 failed, 1 passed, 1 skipped")]
)
def test_a_skipped_test_is_a_failure_where_required(
    tmp_path: Path, required: str, found: str
) -> None:
    (tmp_path / "conftest.py").write_text(
        "from tests.web.conftest import pytest_runtest_makereport as pytest_runtest_makereport\n"
    )
    (tmp_path / "test_it.py").write_text(TEXT)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = other_browser\n")
    environment = os.environ | {"STOWPLAN_REQUIRE_BROWSER": required}
    root = Path(__file__).parents[2]
    environment["PYTHONPATH"] = os.pathsep.join([str(root), str(root / "src")])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "."]
    answer = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240
    )
    assert found in answer.stdout.splitlines()[-1], answer.stdout
