"""Tests of a group run in one worker: what they share is made once."""

import pytest


def test_groups_reach_the_scheduler_of_workers(request: pytest.FixtureRequest) -> None:
    if not getattr(request.config.option, "loadgroup", False):
        pytest.skip("needs workers and --dist loadgroup, as in make test")
    # pytest-xdist reads the group from the end of the name of a test.
    assert request.node.nodeid.endswith("@tidy")
