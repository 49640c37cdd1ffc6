"""The programs under bench/ load, so that a name that moved is noticed before a measurement."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench"


def test_every_program_loads() -> None:
    programs = sorted(path.stem for path in BENCH.glob("*.py"))
    assert "live_real" in programs
    # As a script finds its neighbours: its own folder is on the path.
    command = [sys.executable, "-c", f"import {', '.join(programs)}"]
    done = subprocess.run(command, cwd=BENCH, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
