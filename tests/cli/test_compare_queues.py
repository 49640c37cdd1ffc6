"""`stowplan run --compare`: what it needs, what it logs, and its end."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import pytest

from stowplan.cli.errors import CommandError
from stowplan.cli.runs.queue_models.compare_queues import follow
from stowplan.forecast.queue_comparison.queue_comparer import QueueComparer
from stowplan.inputs.cluster_reader import Cluster
from tests.batch.queue_models import test_volcano_model as volcano
from tests.cli.run import run
from tests.forecast.test_queue_comparer import GROUP, POD, QUEUE, bound, in_phase, listed


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--compare"], "--compare needs --config with actions and tiers or of Kueue"),
        (["--compare-every", "5s"], "--compare-every needs --compare"),
        (["--compare", "--dry-run", "--compat", "kai"], "--dry-run cannot be used with --compare"),
        (
            ["--compare", "--record", "r", "--compat", "kai"],
            "--record cannot be used with --compare",
        ),
    ],
)
def test_it_needs_queues_to_compare(arguments: list[str], text: str) -> None:
    ran = run("run", *arguments)
    assert (ran.code, ran.out) == (2, "")
    assert text in ran.err


def test_differences_and_sums_are_logged_and_a_failed_list_is_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    node, small = volcano.node("n"), volcano.node("small", 4)
    before = listed(node, small, QUEUE, GROUP, POD)
    after = listed(node, small, QUEUE, in_phase(GROUP, "Running"), bound(POD, "small"))
    stop = threading.Event()

    def listings() -> Iterator[Cluster]:
        yield before
        raise_now.append(True)
        yield before
        stop.set()
        yield after

    raise_now: list[bool] = []
    source = listings()

    def list_cluster() -> Cluster:
        found = next(source)
        if raise_now:
            raise_now.clear()
            raise CommandError("the server is away")
        return found

    with caplog.at_level(logging.INFO, "stowplan.scheduler"):
        follow(QueueComparer(volcano.deciders()), list_cluster, 0.0, stop)
    lines = [(one.message, getattr(one, "keys", {})) for one in caplog.records]
    assert lines[0] == ("Unable to list the cluster", {"err": "the server is away"})
    text, keys = lines[1]
    assert (text, keys["start"]) == ("Decision differs", "default/p")
    assert (keys["here"], keys["there"]) == ("n", "small")
    starts = next(keys for _, keys in lines if keys.get("compared") == "starts")
    assert starts["otherNode"] == 1
