"""Tests of a group run in one worker: what they share is made once."""

import os

import pytest


@pytest.mark.skipif("PYTEST_XDIST_WORKER" not in os.environ, reason="without workers")
def test_groups_reach_the_scheduler_of_workers(request: pytest.FixtureRequest) -> None:
    # pytest-xdist reads the group from the end of the name of a test.
    assert request.node.nodeid.endswith("@tidy")
