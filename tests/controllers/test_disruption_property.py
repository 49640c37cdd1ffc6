"""Whatever the evictions, a budget's healthy pods never fall below its minimum."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.policy import eviction
from tests.apiserver.small_cluster import DEPLOYMENTS, SmallCluster, deployment
from tests.soak import examples

BUDGETS = "policy/poddisruptionbudgets"
SPECS = (
    {"minAvailable": 2},
    {"minAvailable": "60%"},
    {"maxUnavailable": 1},
    {"maxUnavailable": "40%"},
)
Move = tuple[int, float]
"""Which pod is evicted, and how long is waited then; below 0.2 s: the controllers do not run."""


def fewest(spec: dict[str, Any], moves: list[Move]) -> int:
    """How many more pods were healthy than the budget wants, at the worst moment."""
    cluster = SmallCluster(3)
    cluster.create(DEPLOYMENTS, deployment("web", 4))
    selector = {"matchLabels": {"app": "web"}}
    cluster.create(BUDGETS, {"metadata": {"name": "b"}, "spec": {**spec, "selector": selector}})
    cluster.run(5)
    wanted = cluster.the(BUDGETS, "b")["status"]["desiredHealthy"]
    worst = _healthy(cluster) - wanted
    for which, wait in moves:
        names = sorted(pod["metadata"]["name"] for pod in cluster.pods())
        _evict(cluster, names[which % len(names)])
        if wait >= 0.2:
            cluster.run(wait)
        worst = min(worst, _healthy(cluster) - wanted)
    return worst


def _evict(cluster: SmallCluster, name: str) -> None:
    try:
        cluster.server.evict("default", name, cluster.now)
    except ApiError as error:
        if error.code != 429:
            raise


def _healthy(cluster: SmallCluster) -> int:
    found = 0
    for pod in cluster.pods():
        conditions = pod["status"].get("conditions") or ()
        ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
        found += ready and not pod["metadata"].get("deletionTimestamp")
    return found


moves = st.tuples(st.integers(0, 7), st.sampled_from([0.0, 0.0, 0.5, 2.0]))


@given(st.sampled_from(SPECS), st.lists(moves, max_size=10))
@settings(max_examples=examples(15), deadline=None)
def test_evictions_never_take_too_many(spec: dict[str, Any], made: list[Move]) -> None:
    assert fewest(spec, made) >= 0


def test_an_eviction_that_does_not_count_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrong variant: the allowance is looked at, but not taken."""
    right = eviction._take_disruption

    def looks_only(call: Any, budgets: Any, budget: Any) -> None:
        server = call.objects
        monkeypatch.setattr(server, "update_status", lambda *_: None)
        right(call, budgets, budget)
        monkeypatch.undo()
        monkeypatch.setattr(eviction, "_take_disruption", looks_only)

    monkeypatch.setattr(eviction, "_take_disruption", looks_only)
    assert fewest({"minAvailable": 2}, [(n, 0.0) for n in range(4)]) < 0
