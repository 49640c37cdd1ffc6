"""Changes that concern more than the node itself: its domain, other requirements, admission."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from stowplan.cycle.change import Change
from stowplan.forecast.explain import explain_changes
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.insight.changes import affinity_edits
from stowplan.insight.changes.edits import can_be_combined
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.pod import Pod
from tests.insight.json_patch import applied
from tests.insight.test_changes import Tree, node, pod
from tests.insight.test_changes_property import can_run

ZONE, HOST = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"


def zone(name: str, value: str, **more: Any) -> Tree:
    return node(name, labels={ZONE: value}, **more)


def away_from(app: str, key: str = ZONE) -> Tree:
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"podAntiAffinity": {REQUIRED: [term]}}


def spread(app: str = "w", **more: Any) -> Tree:
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
    return {**constraint, "labelSelector": {"matchLabels": {"app": app}}, **more}


def on_disks(*expressions: Tree) -> Tree:
    terms = [{"matchExpressions": list(expressions)}]
    return {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}


def limit_range(**requests: str) -> Tree:
    limits = [{"type": "Container", "defaultRequest": requests}]
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "defaults", "namespace": "default"},
        "spec": {"limits": limits},
    }


CLAIM = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {
        "name": "data",
        "namespace": "default",
        "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
    },
    "spec": {
        "accessModes": ["ReadWriteOncePod"],
        "storageClassName": "",
        "resources": {"requests": {"storage": "1Gi"}},
        "volumeName": "data",
    },
}
VOLUME = {
    "apiVersion": "v1",
    "kind": "PersistentVolume",
    "metadata": {"name": "data"},
    "spec": {
        "accessModes": ["ReadWriteOncePod"],
        "capacity": {"storage": "1Gi"},
        "hostPath": {"path": "/data"},
        "claimRef": {"namespace": "default", "name": "data"},
    },
}
DATA = {"name": "data", "persistentVolumeClaim": {"claimName": "data"}}
IN_SSD = {"key": "disk", "operator": "In", "values": ["hdd", "ssd"]}
NOT_TAPE = {"key": "disk", "operator": "NotIn", "values": ["tape"]}
ONLY_N1 = {
    "nodeAffinity": {
        REQUIRED: {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
            ]
        }
    }
}
NOT_READY = [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]
TAINTED = [{"key": "team", "value": "x", "effect": "NoSchedule"}]


def found(folder: Path, manifests: list[Tree]) -> dict[str, Change]:
    """The changes by kind; each lets the pod run once the manifests are patched."""
    path = folder / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests}))
    changes = explain_changes("default/w", read_cluster(path, validate="strict")).changes
    for change in changes:
        after = applied(manifests, msgspec.to_builtins(change)["objects"])
        assert can_run(after, folder), change.text
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": after}))
        read_cluster(path, validate="strict")
    return {change.kind: change for change in changes}


CASES = [
    pytest.param(
        [
            zone("n1", "a", cpu="2"),
            zone("n2", "a"),
            pod("b", node="n1", affinity=away_from("w")),
            pod("w", "4"),
        ],
        "free",
        200,
        "free node n2 by ending default/b on n1",
        id="the anti-affinity of a pod on another node of the zone",
    ),
    pytest.param(
        [
            zone("n1", "a", cpu="2"),
            zone("n2", "a"),
            pod("b", node="n1"),
            pod("w", "4", affinity=away_from("b")),
        ],
        "free",
        200,
        "free node n2 by ending default/b on n1",
        id="anti-affinity to a pod on another node of the zone",
    ),
    pytest.param(
        [
            zone("n1", "a", cpu="2"),
            zone("n2", "a"),
            zone("n3", "b", cpu="500m"),
            pod("b", node="n1", labels={"app": "w"}),
            pod("w", "4", topologySpreadConstraints=[spread()]),
        ],
        "free",
        200,
        "free node n2 by ending default/b on n1",
        id="a pod on another node counts for topology spread",
    ),
    pytest.param(
        [
            zone("n1", "a", cpu="2"),
            zone("n2", "a"),
            CLAIM,
            VOLUME,
            pod("b", node="n1", volumes=[DATA]),
            pod("w", "4", volumes=[DATA]),
        ],
        "free",
        200,
        "free node n2 by ending default/b on n1",
        id="a pod on another node uses the claim of one pod only",
    ),
    pytest.param(
        [
            node("n1", labels={"disk": "tape"}),
            pod("w", nodeSelector={"disk": "ssd"}, affinity=on_disks(IN_SSD, NOT_TAPE)),
        ],
        "label",
        20,
        "label node n1 disk=ssd",
        id="one label meets the selector and both requirements",
    ),
    pytest.param(
        [node("n1", "1"), node("n2"), pod("w", "3", affinity=ONLY_N1)],
        "affinity",
        50,
        "drop the required node affinity",
        id="nodes that required affinity leaves out by name",
    ),
    pytest.param(
        [
            node("n1", taints=NOT_READY),
            node("n2", taints=TAINTED),
            pod("w", "3", affinity=ONLY_N1),
        ],
        "combined",
        60,
        "drop the required node affinity and add a toleration for taint team=x:NoSchedule",
        id="and a toleration on such a node",
    ),
    pytest.param(
        [
            zone("n1", "a"),
            zone("n2", "b", cpu="0"),
            pod("b", node="n1", labels={"app": "w"}, priority=2_000_000_000),
            pod("w", topologySpreadConstraints=[spread(minDomains=3)]),
        ],
        "spread",
        10,
        f"raise maxSkew of the spread constraint on {ZONE} from 1 to 2",
        id="spread with minDomains",
    ),
    pytest.param(
        [limit_range(cpu="5"), node("n1"), pod("w", container={"resources": {}})],
        "request",
        20,
        "lower the cpu request of container c from 5 to 4",
        id="a request that is the default of a LimitRange",
    ),
]


@pytest.mark.parametrize(("manifests", "kind", "cost", "text"), CASES)
def test_changes(tmp_path: Path, manifests: list[Tree], kind: str, cost: int, text: str) -> None:
    change = found(tmp_path, manifests)[kind]
    assert (change.cost, change.text) == (cost, text)


def test_a_soft_constraint_has_no_min_domains(tmp_path: Path) -> None:
    """The API refuses both; a constraint by a label that no node has is left to be soft."""
    constraint = spread(minDomains=3, topologyKey="rack")
    manifests = [zone("n1", "a"), pod("w", topologySpreadConstraints=[constraint])]
    operations = found(tmp_path, manifests)["spread"].objects[0].patch
    at = "/spec/topologySpreadConstraints/0"
    assert operations == (
        {"op": "add", "path": f"{at}/whenUnsatisfiable", "value": "ScheduleAnyway"},
        {"op": "remove", "path": f"{at}/minDomains"},
    )


def test_a_toleration_and_pods_of_the_domain_together(tmp_path: Path) -> None:
    there = pod("b", node="n1", affinity=away_from("w"), tolerations=[{"operator": "Exists"}])
    manifests = [zone("n1", "a", cpu="4", taints=TAINTED), there, pod("w", "4")]
    change = found(tmp_path, manifests)
    assert set(change) == {"combined"}
    assert change["combined"].cost == 210


def test_edits_of_one_part_are_not_combined() -> None:
    spec = convert(affinity_pod(NOT_TAPE, IN_SSD), Pod).spec
    dropped = affinity_edits.drop_expression(spec, 0, 0)
    assert dropped is not None
    whole, added = affinity_edits.drop_required(), affinity_edits.add_value(spec, 0, 0, "x")
    other = affinity_edits.add_value(spec, 0, 1, "x")
    assert not can_be_combined(whole, dropped)
    assert not can_be_combined(added, dropped)
    assert not can_be_combined(added, added)
    assert can_be_combined(dropped, other)
    assert can_be_combined(whole, affinity_edits.drop_selector("disk", "ssd"))


def affinity_pod(*expressions: Tree) -> Tree:
    return pod("w", affinity=on_disks(*expressions))
