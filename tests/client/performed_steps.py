"""Requests of an effect, sent to a cluster of the same process."""

from __future__ import annotations

from collections import Counter
from typing import Any

from stowplan.client.api_calls import RetryPause
from tests.apiserver.small_cluster import SmallCluster


def perform(steps: Any, transport: Any, cluster: SmallCluster, sent: Counter[Any]) -> Any:
    """The outcome of an effect. sent: counts requests by method and last part of the path."""
    reply = None
    while True:
        try:
            step = steps.send(reply)
        except StopIteration as end:
            cluster.run(2)
            return end.value
        if isinstance(step, RetryPause):
            cluster.run(step.seconds)
            reply = None
        else:
            sent[step.method, step.path.rpartition("/")[2]] += 1
            reply = transport.send(step)
