"""Settings of every property test, the same examples each time and fresh ones in a soak; and what
`make check` leaves out."""

import gc
import logging
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

from stowplan.apis.machinery.component_errors import ComponentErrors
from stowplan.driver.logs import PARTS, ROOT
from tests.soak import factor, found_within

# No test asks a server elsewhere: to read the system's certificates is a tenth of what it costs to
# start a process of Stowplan, and of a context for TLS nearly all.
os.environ.setdefault("SSL_CERT_FILE", os.devnull)
os.environ.setdefault("SSL_CERT_DIR", os.devnull)

# Tests make little that is in cycles: with the usual thresholds the collector takes a tenth of
# their processor time.
gc.set_threshold(20_000, 20, 50)

SLOW_FOLDERS = {"conformance", "contract", "driver", "packages", "property"}
"""What these hold is thorough rather than quick: `make check` leaves it to `make test`."""
SLOW_FILES = {
    "test_batch_page.py",
    "test_bench.py",
    "test_bench_measure.py",
    "test_bench_plots.py",
    "test_bench_sessions.py",
    "test_fuzz.py",
    "test_inter_pod_affinity_scan.py",
    "test_node_volume_limits.py",
    "test_pod_topology_spread_scan.py",
    "test_preemption_kept.py",
    "test_up.py",
    "test_volume_binding.py",
    "test_volume_zone.py",
    "test_watch_model.py",
}
"""So do these, which draw or measure much."""

WAITING_FILES = {
    "test_one_shot_requests.py",
    "test_faults.py",
    "test_kubectl.py",
    "test_python_client.py",
    "test_replicas.py",
}
"""What these run, live clusters, waits for the clock: one worker has them all, from the start, and
another one those of the group "embedded", so that the others are left with the processors. In one
group they ended last, while the other workers had nothing to do."""

SHARING_FILES = {
    "test_controllers.py",
    "test_ecosystem.py",
    "test_experiment.py",
    "test_exported_kernels.py",
    "test_gpu_sharing.py",
    "test_http_fuzz.py",
    "test_other_configuration.py",
    "test_recorded_history.py",
    "test_recording_commands.py",
    "test_repeated_refusals.py",
    "test_scheduler.py",
    "test_statistics.py",
}
"""What the tests of one of these share takes seconds to make: one worker has them all."""

LEFT_OUT_FOLDERS = {
    "benchmarks",
    "cli",
    "experiments",
    "fault_runs",
    "queue_models",
    "recording",
    "simulation",
    "web",
}
LEFT_OUT_FILES = {
    "test_card_ledger.py",
    "test_check_plugin.py",
    "test_eta.py",
    "test_explain_gang.py",
    "test_fuzz_kinds.py",
    "test_gpu_share.py",
    "test_gpu_topology.py",
    "test_hostile.py",
    "test_scenarios.py",
    "test_strategies.py",
    "test_volume_restrictions.py",
}
"""`make check` leaves these out, too: whole programs and whole clusters, most of its seconds."""

LONGEST_GROUPS = ("waiting", "embedded", "browser", "dist")
"""What one worker needs longest for starts first, in this order."""
LONG_FOLDERS = {"cli", "experiments", "fault_runs", "simulation"}
"""Files that take seconds start before those that take less, so that workers end together."""
SLOW_CHUNK = 8
"""Tests of a slow file that one worker takes at a time."""

settings.register_profile(
    "stowplan",
    max_examples=found_within(100),
    # A shared machine stalls; a slow example is no failure.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # A sample that never changes keeps `make test` repeatable; a soak looks for news.
    derandomize=factor() == 1,
    print_blob=True,
)
settings.load_profile("stowplan")


@cache
def is_slow(path: Path) -> bool:
    """True for what stands in a slow folder, and for a slow file."""
    here = path.relative_to(Path(__file__).parent)
    return not SLOW_FOLDERS.isdisjoint(here.parts) or path.name in SLOW_FILES


def is_left_out(path: Path) -> bool:
    """True for what `make check` leaves out."""
    here = path.relative_to(Path(__file__).parent)
    is_long = not LEFT_OUT_FOLDERS.isdisjoint(here.parts) or path.name in LEFT_OUT_FILES
    return is_long or is_slow(path)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests are left out leave their files unread, which each worker would read."""
    leaves_out = str(config.option.markexpr).startswith("not slow")
    return True if leaves_out and is_left_out(collection_path) else None


def group_of(item: pytest.Item, place: int) -> str:
    """The tests that one worker takes at once. place: how many of the file are before this one.

    pytest-xdist counts at each end of a test what a worker has had so far, group by group: with a
    group for each test that took as long as a tenth of the tests.
    """
    path = item.path
    if marked := item.get_closest_marker("xdist_group"):
        return str(marked.args[0])
    if path.name in WAITING_FILES:
        return "waiting"
    if "tidy" in path.parts:
        return "tidy"
    if path.name in SHARING_FILES:
        return path.stem
    file = path.relative_to(Path(__file__).parent).as_posix()
    return f"{file} {place // SLOW_CHUNK}" if is_slow(path) else file


def turn(item: pytest.Item, group: str) -> int:
    """When a test is due: groups come in the order in which their first tests do."""
    if group in LONGEST_GROUPS:
        return LONGEST_GROUPS.index(group)
    is_long = is_slow(item.path) or not LONG_FOLDERS.isdisjoint(item.path.parts)
    return len(LONGEST_GROUPS) + (0 if is_long else 1)


# First, for pytest-xdist looks at groups when its turn comes.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow by its place and what Hypothesis draws; group and order what is left."""
    turns: dict[pytest.Item, int] = {}
    places: Counter[Path] = Counter()
    for item in items:
        is_random = item.get_closest_marker("hypothesis") or is_hypothesis_test(
            getattr(item, "obj", None)
        )
        if is_random or is_left_out(item.path):
            item.add_marker(pytest.mark.slow)
        group = group_of(item, places[item.path])
        places[item.path] += 1
        turns[item] = turn(item, group)
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=turns.__getitem__)


def pytest_collection_finish() -> None:
    """Tests stay to the end, so the collector of garbage need not look at them again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """The loggers of Stowplan as a test found them: a command that runs in a test's process
    configures them for the process."""
    found = [
        (logger, logger.level, logger.propagate, list(logger.handlers))
        for logger in map(logging.getLogger, (ROOT, *(f"{ROOT}.{part}" for part in PARTS)))
    ]
    yield
    for logger, level, propagates, handlers in found:
        logger.setLevel(level)
        logger.propagate, logger.handlers[:] = propagates, handlers


@pytest.fixture(autouse=True)
def faults(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """What controllers and observers failed at. The server goes on, so this is what tells a test of
    it; one that expects faults empties the list."""
    found: list[str] = []
    add = ComponentErrors.add

    def noted(self: ComponentErrors, component: str, about: str, error: Exception) -> None:
        found.append(f"{component} {about}: {error!r:.200}")
        add(self, component, about, error)

    monkeypatch.setattr(ComponentErrors, "add", noted)
    yield found
    assert found == []
