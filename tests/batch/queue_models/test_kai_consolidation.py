"""Which jobs consolidation moves where their number is limited: each has its turn."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from msgspec.structs import replace

from stowplan.batch.queue_models.kai.actions import kai_actions
from stowplan.batch.queue_models.kai.actions.movable_jobs import movable_jobs, victim_jobs
from stowplan.batch.queue_models.kai.kai_session import KaiSession
from stowplan.batch.queue_models.kai.state.kai_job import KaiJob
from stowplan.benchmarks.sessions.kai_benchmarks import KaiBenchmark
from stowplan.messages import events as happened
from stowplan.messages.effects import Evict

N_NODES, CARDS = 24, 4
PINNED = range(20)
"""Nodes whose pods may not go anywhere else."""


def cluster() -> KaiBenchmark:
    """Nodes with half of their cards in use, and a pod that needs all cards of one."""
    benchmark = KaiBenchmark(N_NODES, CARDS)
    benchmark.show([benchmark.queue("q")])
    for node in range(N_NODES):
        for card in range(CARDS // 2):
            name = f"r{node:02}-{card}"
            events = [*benchmark.gang(name, "q", 1, ("1", "1Gi", "1"), [node])]
            pod = benchmark.pods[f"{name}-0"]
            if node in PINNED:
                selector = {"kubernetes.io/hostname": pod.node_name}
                pod = replace(pod, spec=replace(pod.spec, node_selector=selector))
                benchmark.pods[pod.name] = pod
            benchmark.show([*events[:-1], happened.PodAdded(pod)])
    benchmark.show(list(benchmark.gang("whole", "q", 1, ("1", "1Gi", str(CARDS)))))
    return benchmark


def sessions_until_moved(n_max: int) -> int:
    """Sessions until pods are moved; each has a change, so that there is something to decide."""
    benchmark = cluster()
    events: list[happened.Event] = [happened.Synced()]
    for number in range(n_max):
        benchmark.session(*events)
        if any(isinstance(effect, Evict) for effect in benchmark.effects):
            return number + 1
        benchmark.settle()
        meta = benchmark.pods["whole-0"].metadata
        notes = {**meta.annotations, "round": str(number)}
        events = [benchmark._changed("whole-0", metadata=replace(meta, annotations=notes))]
    raise AssertionError("no pod was moved")


def test_jobs_that_cannot_move_do_not_hide_those_that_can() -> None:
    assert sessions_until_moved(8) > 1


def test_always_the_same_jobs_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def first_ones(session: KaiSession, job: KaiJob) -> Iterable[KaiJob]:
        return [*victim_jobs(session, job, lambda _: True)][: session.options.max_moved + 1]

    monkeypatch.setattr(kai_actions, "movable_jobs", first_ones)
    with pytest.raises(AssertionError, match="no pod was moved"):
        sessions_until_moved(8)


def test_every_job_has_its_turn_and_no_search_more_than_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[set[str]] = []

    def watched(session: KaiSession, job: KaiJob) -> Iterable[KaiJob]:
        found = [*movable_jobs(session, job)]
        seen.append({one.uid for one in found})
        assert len(found) <= session.options.max_moved + 1
        return []

    monkeypatch.setattr(kai_actions, "movable_jobs", watched)
    with pytest.raises(AssertionError, match="no pod was moved"):
        sessions_until_moved(4)
    # Two jobs a node, eight nodes a search.
    assert len(set().union(*seen[:3])) == 2 * N_NODES
