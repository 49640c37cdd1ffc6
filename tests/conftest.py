"""Settings of every property test: the same examples each time, fresh ones in a soak."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.soak import examples, factor

SLOW_FOLDERS = {"conformance", "contract", "driver", "packages", "property"}
"""What these hold is thorough rather than quick: `make check` leaves it to `make test`."""

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
    """Mark what stands in a slow folder."""
    for item in items:
        if SLOW_FOLDERS & set(Path(item.path).parts):
            item.add_marker(pytest.mark.slow)
