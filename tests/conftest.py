"""Settings of every property test, the same examples each time and fresh ones in a soak; and what
`make check` leaves out."""

import gc
import logging
import os
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
    "test_experiment.py",
    "test_exported_kernels.py",
    "test_gpu_sharing.py",
    "test_other_configuration.py",
    "test_recorded_history.py",
    "test_recording_commands.py",
    "test_repeated_refusals.py",
    "test_statistics.py",
}
"""What the tests of one of these share takes seconds to make: one worker has them all."""

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


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Where slow tests are left out leave their files unread, which each worker would read."""
    leaves_out = str(config.option.markexpr).startswith("not slow")
    return True if leaves_out and is_slow(collection_path) else None


# First, for pytest-xdist looks at groups when its turn comes.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what is slow by its place, what Hypothesis draws, and what waits."""
    for item in items:
        is_random = item.get_closest_marker("hypothesis") or is_hypothesis_test(
            getattr(item, "obj", None)
        )
        if is_random or is_slow(item.path):
            item.add_marker(pytest.mark.slow)
        if item.path.name in WAITING_FILES:
            item.add_marker(pytest.mark.xdist_group("waiting"))
        elif "tidy" in item.path.parts:
            item.add_marker(pytest.mark.xdist_group("tidy"))
        elif item.path.name in SHARING_FILES:
            item.add_marker(pytest.mark.xdist_group(item.path.stem))


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
