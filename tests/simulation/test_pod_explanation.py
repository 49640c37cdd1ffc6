"""Explanations agree with their simulation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import stowplan
from stowplan.framework import NodeInfo, score
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.generated_workload import generate_workload
from stowplan.inputs.input_error import InputError
from stowplan.insight.placement_failures import failures_of
from stowplan.insight.pod_owners import owner_text, owners_of, pods_of_owner
from stowplan.insight.pod_placement import Placement
from stowplan.objects.meta import OwnerReference
from stowplan.objects.pod import Pod, PodStatus
from stowplan.testing import node, pod
from stowplan.testing.builders import affinity, term

NODES = [node("n1", cpu="4"), node("n2", cpu="4")]


def make_cluster() -> Cluster:
    """Two nodes; `late` fits on the empty cluster only, `small` still fits after it."""
    cpu = {"first": "3", "second": "2", "late": "3", "small": "1"}
    return Cluster(NODES, [pod(name, cpu=amount) for name, amount in cpu.items()])


def test_an_explanation_reports_that_a_simulation_refuses_what_fits_now() -> None:
    found = stowplan.explain("default/late", make_cluster())
    assert found.node
    assert found.evaluated_on == "given"
    outcome = found.simulation
    assert outcome is not None
    assert (outcome.tried_before, outcome.placed_before, outcome.node) == (2, 2, "")
    assert outcome.message == "0/2 nodes are available: 2 Insufficient cpu."


def test_an_explanation_reports_that_a_simulation_places_what_does_not_fit_now() -> None:
    with_web = pod("second", affinity=affinity(near=[term("app=web", "zone")]))
    zoned = [node("n1", cpu="4", labels={"zone": "a"})]
    cluster = Cluster(zoned, [pod("first", cpu="1", labels={"app": "web"}), with_web])
    found = stowplan.explain("default/second", cluster)
    assert (found.node, found.fits_somewhere) == ("", False)
    assert found.simulation is not None
    assert found.simulation.node == stowplan.simulate(cluster).placements[0].node


@pytest.mark.parametrize("seed", range(4))
def test_the_refusal_of_a_simulation_is_explained_as_it_was(seed: int) -> None:
    cluster = generate_workload(n_nodes=12, n_pods=150, seed=3)
    plain = stowplan.simulate(cluster, seed=seed)
    refused = [one for one in plain.placements if not one.node]
    placed = [one for one in plain.placements if one.node]
    assert refused, "the workload fits whole"
    for one in (*refused[:3], *placed[-2:]):
        run = stowplan.simulate(cluster, seed=seed, explain=one.pod)
        # An explanation does not change placements.
        assert run.placements == plain.placements
        found = run.explanation
        assert found is not None
        assert (found.pod, found.evaluated_on, found.node) == (one.pod, "simulation", one.node)
        assert found.message == one.message
        assert found.fits_somewhere == bool(one.node)


def test_a_pod_is_filtered_in_its_turn_and_not_at_the_end() -> None:
    run = stowplan.simulate(make_cluster(), explain="default/late")
    assert run.explanation is not None
    details = [one.first.details for one in run.explanation.nodes if one.first]
    # `small` takes another core of one node later.
    assert sorted(details) == [
        ("cpu: needs 3000m, 1000m free of 4000m",),
        ("cpu: needs 3000m, 2000m free of 4000m",),
    ]
    assert run.placements[3].node
    assert (
        stowplan.explain("default/late", make_cluster(), after_simulation=True) == run.explanation
    )


def test_a_large_input_is_not_simulated_unless_asked() -> None:
    found = stowplan.explain("default/late", make_cluster(), compare_max=3)
    assert found.simulation is not None
    assert found.simulation.not_run == "2 pods precede it, on 2 nodes"
    assert stowplan.explain("default/late", make_cluster(), compare_max=4).simulation is not None
    after = stowplan.explain("default/late", make_cluster(), compare_max=0, after_simulation=True)
    assert after.simulation is not None
    assert after.simulation.message


def test_another_pods_fault_is_its_own() -> None:
    @score("picky")
    def picky(pod: Pod, node: NodeInfo) -> int:
        return 50 if pod.name == "late" else 10**6

    found = stowplan.explain("default/late", make_cluster(), plugins=[picky])
    assert found.node
    assert found.simulation is not None
    assert not found.simulation.not_run
    assert "picky" in stowplan.explain("default/first", make_cluster(), plugins=[picky]).message


def test_bound_and_unknown_pods_have_no_turn() -> None:
    over = pod("over", cpu="1")
    over = msgspec.structs.replace(over, status=PodStatus(phase="Failed"))
    cluster = Cluster(NODES, [pod("there", cpu="1", on="n1"), over])
    assert stowplan.explain("default/there", cluster).simulation is None
    assert stowplan.explain("default/over", cluster).simulation is None
    for how in (
        lambda: stowplan.explain("default/there", cluster, after_simulation=True),
        lambda: stowplan.simulate(cluster, explain="default/there"),
        lambda: stowplan.simulate(cluster, explain="default/nope"),
        lambda: stowplan.simulate(cluster, explain="default/nope", replay=stowplan.ReplayOptions()),
    ):
        with pytest.raises(InputError, match="no pending pod of this name"):
            how()


def test_a_replay_explains_pods_pending_at_its_end() -> None:
    run = stowplan.simulate(make_cluster(), explain="default/late", replay=stowplan.ReplayOptions())
    assert run.explanation is not None
    assert run.explanation.message == run.placements[2].message
    assert run.explanation.message.startswith("0/2 nodes are available: 2 Insufficient cpu.")
    run = stowplan.simulate(
        make_cluster(), explain="default/small", replay=stowplan.ReplayOptions()
    )
    assert run.explanation is None
    assert any("default/small is not pending" in note for note in run.summary["notes"])


def owned_pod(name: str, kind: str, owner: str, **labels: str) -> Pod:
    made = pod(name, cpu="1", labels=labels)
    reference = OwnerReference(kind=kind, name=owner, uid="u", controller=True)
    meta = msgspec.structs.replace(made.metadata, owner_references=[reference])
    return msgspec.structs.replace(made, metadata=meta)


@pytest.mark.parametrize(
    ("made", "owners", "text"),
    [
        (pod("bare"), [], "<none>"),
        (
            owned_pod("a", "ReplicaSet", "web-5d9", **{"pod-template-hash": "5d9"}),
            [("ReplicaSet", "web-5d9"), ("Deployment", "web")],
            "deployment/web",
        ),
        (
            owned_pod("a", "ReplicaSet", "web-5d9"),
            [("ReplicaSet", "web-5d9")],
            "replicaset/web-5d9",
        ),
        (
            owned_pod("a", "Job", "nightly-29384756"),
            [("Job", "nightly-29384756"), ("CronJob", "nightly")],
            "cronjob/nightly",
        ),
        (owned_pod("a", "Job", "train-2024"), [("Job", "train-2024")], "job/train-2024"),
        (owned_pod("a", "StatefulSet", "db"), [("StatefulSet", "db")], "statefulset/db"),
    ],
)
def test_owners_are_derived_from_pods(made: Pod, owners: list[Any], text: str) -> None:
    assert owners_of(made) == owners
    assert owner_text(made) == text
    for kind, name in owners:
        assert pods_of_owner([made], kind, name, "default") == [made]
        assert pods_of_owner([made], kind, name, None) == [made]
        assert pods_of_owner([made], kind, name, "elsewhere") == []


def test_failures_are_grouped_by_owner_and_reason() -> None:
    pods = [owned_pod(f"w{n}", "StatefulSet", "w") for n in range(3)] + [pod("a"), pod("b")]
    placements = [
        Placement("default/w0", "n1"),
        Placement("default/a", "", "full", "m"),
        Placement("default/w1", "", "full", "m"),
        Placement("default/w2", "", "other", "m"),
        Placement("default/b", "", "full", "m"),
    ]
    found = failures_of(placements, pods)
    assert [(one.reason, one.namespace, one.owner, one.pods) for one in found] == [
        ("full", "", "<none>", ["default/a", "default/b"]),
        ("full", "default", "statefulset/w", ["default/w1"]),
        ("other", "default", "statefulset/w", ["default/w2"]),
    ]
