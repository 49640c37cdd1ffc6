"""What simulation imports: none of the packages for tests, conformance, benchmarks, fault runs."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

CODE = "import json, sys\n{}\nprint(json.dumps(sorted(sys.modules)))"
SIMULATE_COMMAND = """
import sys
from stowplan.cli.main import main
sys.argv = ["stowplan", "simulate", "--node-count", "3"]
try:
    main()
except SystemExit as ended:
    assert ended.code in (0, 1), ended.code
assert "stowplan.simulation.placement_run" in sys.modules
"""
EXCLUDED = ("testing", "conformance", "benchmarks")


def excluded_modules(code: str) -> list[str]:
    """Modules of the excluded packages that a fresh interpreter has loaded after `code`."""
    ran = subprocess.run(
        [sys.executable, "-c", CODE.format(code)], capture_output=True, check=True, text=True
    )
    loaded = json.loads(ran.stdout.splitlines()[-1])
    assert "stowplan" in loaded
    return [name for name in loaded if name.split(".")[:2] in [["stowplan", e] for e in EXCLUDED]]


@pytest.mark.parametrize(
    "code",
    [
        "import stowplan",
        "import stowplan; stowplan.simulate",
        "import stowplan; stowplan.explain, stowplan.simulate_jobs",
        "import stowplan.simulation.plugin_sampling",
        SIMULATE_COMMAND,
    ],
)
def test_simulation_loads_no_excluded_package(code: str) -> None:
    assert excluded_modules(code) == []


def test_an_excluded_package_is_found() -> None:
    assert "stowplan.testing" in excluded_modules("import stowplan.testing")
