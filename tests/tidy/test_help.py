"""Help is shown without loading what decides; seconds are not measured, imports are counted."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from stowplan.benchmarks import benchmark_workload, measurement
from stowplan.cli import options, simulate_options
from stowplan.cli.commands import bench, evaluate, status
from stowplan.cli.main import COMMANDS
from stowplan.config.session_configuration import COMPAT_NAMES, COMPATS, VOLCANO_1_15
from stowplan.conformance.evaluate import FORMATS
from stowplan.conformance.queue_models import kai_cases, kueue_cases
from stowplan.driver.http import listen_address
from stowplan.scheduler.options import KUBE_SCHEDULER_1_36
from stowplan.simulation.cluster.cluster_api import Pace

HEAVY = (
    "aiohttp",
    "asyncio",
    "numba",
    "numpy",
    "prometheus_client",
    "re2",
    "rich",
    "sqlite3",
    "ssl",
    "stowplan.columns",
    "stowplan.framework",
    "yaml",
)
SCRIPT = """\
import json, sys
from stowplan.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print(json.dumps(sorted(sys.modules)), file=sys.stderr)
"""


def loaded_by(*arguments: str, script: str = SCRIPT) -> set[str]:
    """Those of HEAVY that a command loads."""
    ran = subprocess.run(
        [sys.executable, "-c", script, *arguments], capture_output=True, text=True, check=True
    )
    modules = set(json.loads(ran.stderr.splitlines()[-1]))
    return modules & set(HEAVY)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_loads_nothing_that_decides(command: str) -> None:
    assert loaded_by(command, "--help") == set()


@pytest.mark.parametrize("group", [("config", "check"), ("plugin", "check"), ("plugin", "new")])
def test_nor_does_that_of_commands_of_a_group(group: tuple[str, ...]) -> None:
    assert loaded_by(*group, "--help") == set()


def test_a_command_that_loads_is_caught() -> None:
    script = SCRIPT.replace("import json, sys", "import json, sys, numpy, yaml")
    assert loaded_by("status", "--help", script=script) >= {"numpy", "yaml"}


def test_help_states_what_holds() -> None:
    """Texts of help stand apart from what they are about, which loads too much."""
    assert tuple(sorted(COMPATS)) == options.COMPAT_NAMES
    assert options.ALL_COMPAT_NAMES == COMPAT_NAMES
    evaluated = (VOLCANO_1_15, kai_cases.KAI, kueue_cases.KUEUE)
    assert (KUBE_SCHEDULER_1_36, *evaluated) == COMPAT_NAMES[1:]
    assert tuple(sorted(FORMATS)) == evaluate.FORMATS
    assert (Pace().bind_s, Pace().start_s) == (simulate_options.BIND_S, simulate_options.START_S)
    assert bench.ENGINES == measurement.ENGINES
    assert status.DEFAULT == listen_address.DEFAULT_LISTEN_ADDRESS
    assert bench.TEMPLATES == benchmark_workload.TEMPLATES
