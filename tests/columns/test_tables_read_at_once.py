"""What is read from a whole table at once is what its changes, pod by pod, would give."""

from __future__ import annotations

import numpy as np
from msgspec.structs import replace

from stowplan.columns.nodetable import NodeTable
from stowplan.columns.pods.podterms import ExistingPodTerms
from stowplan.objects.pod import Affinity, Pod, PodAffinity, PodAffinityTerm
from stowplan.objects.selectors import LabelSelector
from stowplan.plugins.preemption.default_preemption import AssignedPodPriorities
from stowplan.testing import builders


def pods() -> list[Pod]:
    return [
        builders.pod(f"p{i}", cpu=f"{i + 1}00m", priority=i % 3 - 1, on=f"n{i % 2}")
        for i in range(7)
    ]


def table(with_pods: bool) -> NodeTable:
    made = NodeTable()
    for i in range(3):
        made.add_node(builders.node(f"n{i}", cpu="8"))
    for pod in pods() if with_pods else ():
        made.add_pod(pod)
    return made


def test_requests_are_those_that_are_summed() -> None:
    made, other = table(True), table(True)
    rows = np.arange(made.n_nodes)
    found = made.infos_of(rows)
    for info, summed in zip(found, other.infos(), strict=True):
        assert {name: n for name, n in info.requested.items() if n} == summed.requested
    made.remove_pod(pods()[0].uid)
    assert made.info(made.row("n0")).requested["cpu"] == found[0].requested["cpu"] - 100


def test_priorities_are_those_that_are_counted() -> None:
    began = AssignedPodPriorities.of(table(True))
    later = table(False)
    counted = AssignedPodPriorities.of(later)
    for pod in pods():
        later.add_pod(pod)
    assert (
        (began.lowest, began._counts)
        == (counted.lowest, counted._counts)
        == (
            -1,
            {-1: 3, 0: 2, 1: 2},
        )
    )


def apart(pod: Pod) -> Pod:
    """The pod, with a term that keeps it apart from its like."""
    term = PodAffinityTerm(LabelSelector({"app": pod.name}), topology_key="zone")
    spread = Affinity(pod_anti_affinity=PodAffinity((term,)))
    return replace(pod, spec=replace(pod.spec, affinity=spread))


def test_terms_are_those_that_are_entered() -> None:
    full, later = table(True), table(False)
    entered = ExistingPodTerms.of(later)
    for pod in pods()[:2]:
        other = apart(replace(pod, metadata=replace(pod.metadata, name="x", uid=f"x{pod.uid}")))
        full.add_pod(other)
        later.add_pod(other)
    began = ExistingPodTerms.of(full)
    rows = [one.rows for one in began.all()]
    assert rows == [one.rows for one in entered.all()] == [{0: 1, 1: 1}]
