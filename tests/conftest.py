"""Settings of every property test: the same examples each time, fresh ones in a soak."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.soak import examples, factor

SLOW_FOLDERS = {"conformance", "contract", "driver", "packages", "property"}
"""What these hold is thorough rather than quick: `make check` leaves it to `make test`."""
SLOW_FILES = {
    "test_bench.py",
    "test_bench_measure.py",
    "test_node_volume_limits.py",
    "test_pod_topology_spread_scan.py",
    "test_preemption_kept.py",
    "test_up.py",
    "test_volume_binding.py",
    "test_volume_zone.py",
}
"""So do these, which draw or measure much."""

settings.register_profile(
    "stowplan",
    max_examples=examples(100),
    # A shared machine stalls; a slow example is no failure.
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    # A sample that never changes keeps `make test` repeatable; a soak looks for news.
    derandomize=factor() == 1,
    print_blob=True,
)
settings.load_profile("stowplan")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what stands in a slow folder, or a slow file."""
    for item in items:
        path = Path(item.path)
        if SLOW_FOLDERS & set(path.parts) or path.name in SLOW_FILES:
            item.add_marker(pytest.mark.slow)
