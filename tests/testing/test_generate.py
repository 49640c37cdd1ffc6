"""Generated clusters: the same dice, the same cluster; and all that rules read does occur."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from stowplan.columns.invariants import validate
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.storage import PersistentVolume, PersistentVolumeClaim, StorageClass
from stowplan.objects.workload import Service
from stowplan.testing import GeneratedCluster, generate_cluster
from stowplan.testing.builders import ZONE
from stowplan.testing.generators.choices import chance, pick, random_int, sample
from stowplan.testing.generators.table_changes import random_steps

SCENES = [generate_cluster(np.random.default_rng(seed)) for seed in range(40)]
PODS = [pod for each in SCENES for pod in (*each.pods, *each.pending)]
NODES = [node for each in SCENES for node in each.nodes]


def test_the_same_seed_makes_the_same_cluster() -> None:
    first, second = (generate_cluster(np.random.default_rng(7)) for _ in range(2))
    assert first == second
    assert first != generate_cluster(np.random.default_rng(8))


def test_a_cluster_has_the_size_that_was_asked_for() -> None:
    made = generate_cluster(np.random.default_rng(1), n_nodes=3, n_pods=5, n_pending=2)
    assert (len(made.nodes), len(made.pods), len(made.pending)) == (3, 5, 2)
    assert generate_cluster(np.random.default_rng(1), n_nodes=0, n_pods=0, n_pending=0).nodes == ()


def test_names_are_distinct_and_every_cluster_can_be_built() -> None:
    for each in SCENES:
        validate(each.table())
        assert each.snapshot().nodes.n_nodes == len(each.nodes)
        names = [(type(value), value.metadata.namespace, value.name) for value in each.objects]
        assert len(names) == len(set(names))


def share(values: Iterable[object], holds: Callable[..., object]) -> float:
    answers = [bool(holds(value)) for value in values]
    return sum(answers) / len(answers)


NODE_FEATURES: dict[str, Callable[[Node], object]] = {
    "a zone": lambda n: ZONE in n.labels,
    "no zone": lambda n: ZONE not in n.labels,
    "a label": lambda n: "disk" in n.labels,
    "hard taints": lambda n: any(t.effect == "NoSchedule" for t in n.taints),
    "evicting taints": lambda n: any(t.effect == "NoExecute" for t in n.taints),
    "soft taints": lambda n: any(t.effect == "PreferNoSchedule" for t in n.taints),
    "a cordon": lambda n: n.spec.unschedulable,
    "images": lambda n: n.status.images,
    "an extended resource": lambda n: "nvidia.com/gpu" in n.status.allocatable,
    "no cpu": lambda n: "cpu" not in n.status.allocatable,
    "declared features": lambda n: n.status.declared_features,
}

POD_FEATURES: dict[str, Callable[[Pod], object]] = {
    "several containers": lambda p: len(p.spec.containers) > 1,
    "init containers": lambda p: any(not c.is_sidecar for c in p.spec.init_containers),
    "sidecars": lambda p: any(c.is_sidecar for c in p.spec.init_containers),
    "overhead": lambda p: p.spec.overhead,
    "pod-level requests": lambda p: p.spec.resources,
    "no requests": lambda p: not any(c.resources.requests for c in p.spec.containers),
    "an extended resource": lambda p: any(
        "nvidia.com/gpu" in c.resources.requests for c in p.spec.containers
    ),
    "a resize": lambda p: p.status.container_statuses,
    "host ports": lambda p: any(q.host_port for c in p.spec.containers for q in c.ports),
    "a priority": lambda p: p.priority > 0,
    "a node selector": lambda p: p.spec.node_selector,
    "required node affinity": lambda p: (
        p.spec.affinity and p.spec.affinity.node_affinity and p.spec.affinity.node_affinity.required
    ),
    "preferred node affinity": lambda p: (
        p.spec.affinity
        and p.spec.affinity.node_affinity
        and p.spec.affinity.node_affinity.preferred
    ),
    "pod affinity": lambda p: p.spec.affinity and p.spec.affinity.pod_affinity,
    "pod anti-affinity": lambda p: p.spec.affinity and p.spec.affinity.pod_anti_affinity,
    "hard spreading": lambda p: any(
        c.when_unsatisfiable == "DoNotSchedule" for c in p.spec.topology_spread_constraints
    ),
    "soft spreading": lambda p: any(
        c.when_unsatisfiable == "ScheduleAnyway" for c in p.spec.topology_spread_constraints
    ),
    "tolerations": lambda p: p.tolerations,
    "gates": lambda p: p.spec.scheduling_gates,
    "claims": lambda p: any(v.persistent_volume_claim for v in p.spec.volumes),
    "ephemeral volumes": lambda p: any(v.ephemeral for v in p.spec.volumes),
    "disks": lambda p: any(v.gce_persistent_disk for v in p.spec.volumes),
    "a nomination": lambda p: p.status.nominated_node_name,
    "a resource claim": lambda p: p.spec.resource_claims,
    "a user namespace": lambda p: p.spec.host_users is False,
}


@pytest.mark.parametrize("feature", NODE_FEATURES)
def test_nodes_have(feature: str) -> None:
    assert 0.01 < share(NODES, NODE_FEATURES[feature]) < 0.99


@pytest.mark.parametrize("feature", POD_FEATURES)
def test_pods_have(feature: str) -> None:
    assert 0.01 < share(PODS, POD_FEATURES[feature]) < 0.99


def test_there_are_objects_of_other_kinds() -> None:
    for kind in (StorageClass, PersistentVolume, PersistentVolumeClaim, Service):
        assert all(any(isinstance(o, kind) for o in each.objects) for each in SCENES)


def over_committed(made: GeneratedCluster) -> bool:
    table = made.table()
    return bool((table.requested("cpu") > table.allocatable("cpu")).any())


def test_some_clusters_are_over_committed_and_some_pods_lack_their_node() -> None:
    assert 0.1 < share(SCENES, over_committed) < 1
    assert share((p for s in SCENES for p in s.pods), lambda p: p.node_name == "n-unseen") > 0.01


def test_a_history_has_every_kind_of_step_and_can_happen() -> None:
    kinds: set[str] = set()
    for seed in range(10):
        table = GeneratedCluster((), (), (), ()).table()
        for step in random_steps(np.random.default_rng(seed), 30):
            kinds.add(step.method)
            step.apply(table)
    assert len(kinds) == 7


class Fixed:
    """Dice that fall as written."""

    def __init__(self, *throws: int) -> None:
        self.throws = list(throws)

    def integers(self, low: int, high: int) -> int:
        throw = low + self.throws.pop(0)
        assert throw < high
        return throw


def test_choices_are_made_of_throws() -> None:
    assert random_int(Fixed(3), 2, 5) == 5
    assert pick(Fixed(1), "abc") == "b"
    assert [chance(Fixed(throw), 3) for throw in range(3)] == [False, False, True]
    assert sample(Fixed(0), "abc", 2) == ()
    assert sample(Fixed(2, 1, 0), "abc", 2) == ("b", "a")
    assert sample(Fixed(1, 0), "a", 9) == ("a",)
