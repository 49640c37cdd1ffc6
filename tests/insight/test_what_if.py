"""What-if on particular clusters: what each change does, budgets, preemption, time, and errors."""

from __future__ import annotations

import json
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from stowplan.forecast.cluster import QueryableCluster
from stowplan.forecast.what_if import preemption_chain
from stowplan.forecast.what_if.over_time import Timing
from stowplan.forecast.what_if.questions import WhatIfOptions
from stowplan.inputs.input_error import InputError
from stowplan.insight.what_if.result import WhatIf

Tree = dict[str, Any]

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def node(name: str, cpu: str = "4", zone: str = "a", pool: str = "p", **spec: Any) -> Tree:
    offered = {"cpu": cpu, "memory": "8Gi", "pods": "20"}
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": zone,
        "stowplan.dev/pool": pool,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": offered, "capacity": offered},
    }


def pod(
    name: str,
    cpu: str = "1",
    on: str = "",
    owner: str = "",
    kind: str = "ReplicaSet",
    started: str = "",
    annotations: Tree | None = None,
    **spec: Any,
) -> Tree:
    app = owner or name
    meta: Tree = {"name": name, "labels": {"app": app}, "annotations": annotations or {}}
    if owner:
        by = {"apiVersion": "apps/v1", "kind": kind, "name": owner, "controller": True}
        meta["ownerReferences"] = [by]
    container = {"name": "c", "image": "x", "resources": {"requests": {"cpu": cpu}}}
    spec = {"containers": [container], **spec}
    status: Tree = {}
    if on:
        spec["nodeName"] = on
        status = {"phase": "Running"} | ({"startTime": started} if started else {})
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def deployment(name: str, replicas: int, cpu: str = "1") -> Tree:
    template = {"metadata": {"labels": {"app": name}}, "spec": pod(name, cpu)["spec"]}
    selector = {"matchLabels": {"app": name}}
    spec = {"replicas": replicas, "selector": selector, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


def budget(app: str, **spec: Any) -> Tree:
    spec["selector"] = {"matchLabels": {"app": app}}
    version = "policy/v1"
    meta = {"name": app}
    return {"apiVersion": version, "kind": "PodDisruptionBudget", "metadata": meta, "spec": spec}


def write(folder: Path, *objects: Tree, name: str = "cluster.json") -> Path:
    path = folder / name
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)}))
    return path


def cluster(folder: Path, *objects: Tree) -> QueryableCluster:
    return QueryableCluster.from_files(write(folder, *objects), validate="ignore")


def asked(folder: Path, objects: list[Tree], *changes: tuple[str, str], **options: Any) -> WhatIf:
    return cluster(folder, *objects).what_if(changes, options=WhatIfOptions(**options))


def effects(found: WhatIf) -> dict[str, tuple[str, str, str]]:
    """Pod -> (effect, from, to)."""
    return {
        one.pod.removeprefix("default/"): (one.effect, one.source, one.target) for one in found.pods
    }


# Drains.


def test_a_drained_zone_moves_owned_pods_and_loses_bare_ones(tmp_path: Path) -> None:
    objects = [
        node("n1", zone="a"),
        node("n2", zone="c"),
        pod("web-1", on="n2", owner="web"),
        pod("bare", on="n2"),
        pod("agent", on="n2", owner="agent", kind="DaemonSet"),
    ]
    found = asked(tmp_path, objects, ("drain", "c"))
    assert effects(found) == {"web-1": ("moved", "n2", "n1"), "bare": ("lost", "n2", "")}
    assert found.changes[0].effect == "1 node cordoned, 2 pods evicted"
    assert found.summary["nodes"] == 1
    assert found.summary["nodes_before"] == 2
    assert "there are no PodDisruptionBudgets in the input: evictions meet none" in found.notes


@pytest.mark.parametrize(
    "text", ["n2", "node/n2", "c", "stowplan.dev/pool=x", "stowplan.dev/pool in (x)"]
)
def test_a_drain_names_a_node_a_zone_or_labels(tmp_path: Path, text: str) -> None:
    objects = [node("n1"), node("n2", zone="c", pool="x"), pod("w", on="n2", owner="web")]
    assert effects(asked(tmp_path, objects, ("drain", text))) == {"w": ("moved", "n2", "n1")}


def test_a_budget_without_disruptions_blocks_its_pods(tmp_path: Path) -> None:
    objects = [
        node("n1"),
        node("n2", zone="c"),
        pod("web-1", on="n2", owner="web"),
        budget("web", minAvailable=1),
    ]
    found = asked(tmp_path, objects, ("drain", "c"))
    assert effects(found) == {"web-1": ("blocked", "n2", "n2")}
    (use,) = found.budgets
    assert (use.budget, use.allowed, use.evicted, use.blocked) == ("default/web", 0, 0, 1)


def test_a_budget_lets_a_drain_go_on_while_its_pods_find_nodes(tmp_path: Path) -> None:
    """Six pods, one disruption allowed, places for three: the fourth waits, two stay."""
    objects = [
        node("n1", cpu="3"),
        node("n2", cpu="6", zone="c"),
        *(pod(f"web-{i}", on="n2", owner="web") for i in range(6)),
        budget("web", maxUnavailable=1),
    ]
    found = asked(tmp_path, objects, ("drain", "c"))
    assert (found.summary["moved"], found.summary["unplaced"], found.summary["blocked"]) == (
        3,
        1,
        2,
    )
    (use,) = found.budgets
    assert (use.allowed, use.evicted, use.unplaced, use.blocked) == (1, 4, 1, 2)


@pytest.mark.parametrize(
    ("spec", "allowed"),
    [
        ({"minAvailable": 2}, 2),
        ({"minAvailable": "50%"}, 2),
        ({"minAvailable": "51%"}, 1),
        ({"maxUnavailable": "25%"}, 1),
        ({"maxUnavailable": "26%"}, 2),
        ({"maxUnavailable": 0}, 0),
    ],
)
def test_budgets_that_no_controller_has_counted(tmp_path: Path, spec: Tree, allowed: int) -> None:
    pods = [pod(f"web-{i}", "100m", on="n2", owner="web") for i in range(4)]
    objects = [node("n1"), node("n2", zone="c"), *pods, budget("web", **spec)]
    assert asked(tmp_path, objects, ("drain", "c")).budgets[0].allowed == allowed


def test_a_counted_budget_is_believed(tmp_path: Path) -> None:
    counted = budget("web", maxUnavailable=0) | {
        "status": {"disruptionsAllowed": 2, "observedGeneration": 1}
    }
    objects = [node("n1"), node("n2", zone="c"), pod("web-1", on="n2", owner="web"), counted]
    assert asked(tmp_path, objects, ("drain", "c")).budgets[0].allowed == 2


# Nodes.


def test_added_nodes_are_like_those_of_the_pool_with_their_daemon_pods(tmp_path: Path) -> None:
    taints = [{"key": "gpu", "effect": "NoSchedule"}]
    anywhere = [{"operator": "Exists"}]
    objects = [
        node("n1"),
        node("g1", pool="gpu", taints=taints),
        pod("agent-1", on="g1", owner="agent", kind="DaemonSet", tolerations=anywhere),
        *(pod(f"w{i}", "2", tolerations=anywhere) for i in range(6)),
    ]
    found = asked(tmp_path, objects, ("add-nodes", "gpu=2"))
    # Before: two on n1, one on g1 beside the agent. Each new node has an agent, too: one more pod.
    assert found.summary["pending_before"] == 3
    assert (found.summary["placed"], found.summary["pending"]) == (2, 1)
    assert found.summary["nodes"] == 4
    assert {one.owner for one in found.pods} == {"<none>"}


def test_a_pool_grows_in_the_zones_that_are_not_drained(tmp_path: Path) -> None:
    objects = [node("n1", zone="c"), node("n2", zone="a"), *(pod(f"w{i}", "4") for i in range(3))]
    found = asked(tmp_path, objects, ("add-nodes", "p=2"), ("drain", "c"))
    assert found.changes[0].effect == "2 nodes of pool p added: n2-new-1, n2-new-2"
    assert (found.summary["pending_before"], found.summary["pending"]) == (1, 0)


def test_a_daemon_set_of_the_input_gets_pods_on_new_nodes(tmp_path: Path) -> None:
    daemons = deployment("agent", 1, "3") | {"kind": "DaemonSet"}
    objects = [node("n1"), daemons, pod("w", "2")]
    alone = asked(tmp_path, objects, ("add-nodes", "p=1"))
    # The agent of the new node is decided before the pod, which is left without one.
    assert (alone.summary["pending_before"], alone.summary["pending"]) == (1, 1)
    assert alone.resources["cpu"].after.requested == 6000


def test_a_taint_that_evicts(tmp_path: Path) -> None:
    objects = [
        node("n1"),
        node("n2"),
        pod("w", on="n2", owner="web"),
        pod("kept", on="n2", owner="k", tolerations=[{"key": "bad", "operator": "Exists"}]),
    ]
    found = asked(tmp_path, objects, ("taint", "n2=bad=yes:NoExecute"))
    assert effects(found) == {"w": ("moved", "n2", "n1")}
    tainted = [node("n1", taints=[{"key": "bad", "effect": "NoSchedule"}]), pod("w")]
    assert effects(asked(tmp_path, tainted, ("taint", "n1=bad:NoSchedule-"))) == {
        "w": ("placed", "", "n1")
    }
    assert effects(asked(tmp_path, tainted, ("taint", "n1=bad-"))) == {"w": ("placed", "", "n1")}


def test_a_label_that_a_pod_selects(tmp_path: Path) -> None:
    objects = [node("n1"), pod("w", nodeSelector={"disk": "ssd"})]
    found = asked(tmp_path, objects, ("label", "n1=disk=ssd"))
    assert effects(found) == {"w": ("placed", "", "n1")}


# Workloads.


def test_a_deployment_of_the_input_is_scaled(tmp_path: Path) -> None:
    objects = [node("n1"), deployment("web", 2)]
    up = asked(tmp_path, objects, ("scale", "deploy/web=6"))
    assert (up.summary["placed"], up.summary["unplaced"]) == (2, 2)
    down = asked(tmp_path, objects, ("scale", "deploy/web=0"))
    assert down.summary["deleted"] == 2
    assert asked(tmp_path, objects, ("scale", "deploy/web=2")).pods == ()


def test_an_owner_that_is_not_in_the_input_is_scaled(tmp_path: Path) -> None:
    owned = [pod(f"web-7d-{i}", on="n1", owner="web-7d") for i in range(2)]
    for one in owned:
        one["metadata"]["labels"]["pod-template-hash"] = "7d"
    objects = [node("n1"), node("n2"), *owned]
    found = asked(tmp_path, objects, ("scale", "deploy/web=4"))
    assert found.summary["placed"] == 2
    assert "deployment/web is not in the input: new pods are like pod default/web-7d-1" in (
        found.notes
    )
    assert asked(tmp_path, objects, ("scale", "deploy/web=1")).summary["deleted"] == 1


def test_the_pods_that_a_smaller_workload_deletes(tmp_path: Path) -> None:
    """Pending ones first, then those with a low deletion cost, then those that share a node."""
    cost = {"controller.kubernetes.io/pod-deletion-cost": "-1"}
    objects = [
        node("n1"),
        node("n2"),
        pod("w-alone", on="n2", owner="w"),
        pod("w-two", on="n1", owner="w"),
        pod("w-three", on="n1", owner="w"),
        pod("w-cheap", on="n1", owner="w", annotations=cost),
        pod("w-huge", "9", owner="w"),
    ]
    order = []
    for size in (4, 3, 2, 1):
        gone = set(effects(asked(tmp_path, objects, ("scale", f"rs/w={size}")))) - set(order)
        order += sorted(gone)
    assert order[:2] == ["w-huge", "w-cheap"]
    assert "w-alone" not in order


def test_deleting_makes_place(tmp_path: Path) -> None:
    objects = [node("n1", "2"), pod("a", "2", on="n1", owner="old"), pod("w", "2")]
    found = asked(tmp_path, objects, ("delete", "rs/old"))
    assert effects(found) == {"a": ("deleted", "n1", ""), "w": ("placed", "", "n1")}
    again = asked(tmp_path, objects, ("delete", "pod/a"))
    assert again.changes[0].effect == "pod default/a deleted; its owner creates it again"
    assert effects(again)["w"] == ("placed", "", "n1")


def test_another_configuration(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- schedulerName: default-scheduler\n  plugins:\n    multiPoint:\n"
        "      disabled: [{name: TaintToleration}]\n"
    )
    objects = [node("n1", taints=[{"key": "t", "effect": "NoSchedule"}]), pod("w")]
    found = asked(tmp_path, objects, ("config", str(config)))
    assert effects(found) == {"w": ("placed", "", "n1")}


def test_a_plugin(tmp_path: Path) -> None:
    file = tmp_path / "none.py"
    file.write_text(
        "from stowplan.framework import unresolvable\n\n\n"
        "class Nowhere:\n    name = 'Nowhere'\n\n"
        "    def filter(self, pod, node):\n        return unresolvable('nowhere')\n"
    )
    found = asked(tmp_path, [node("n1"), pod("w")], ("plugin", str(file)))
    assert effects(found) == {"w": ("unplaced", "n1", "")}
    assert found.pods[0].reason == "nowhere"


# Preemption.


def low(name: str, on: str, cpu: str = "4", priority: int = 0, **more: Any) -> Tree:
    return pod(name, cpu, on=on, owner=f"of-{name}", priority=priority, **more)


def test_a_submitted_pod_shows_whom_it_preempts(tmp_path: Path) -> None:
    objects = [
        node("n1"),
        low("old", "n1", started="2026-01-01T10:00:00Z"),
        budget("of-old", maxUnavailable=0),
    ]
    new = write(tmp_path, pod("new", "3", priority=10), name="new.json")
    found = asked(tmp_path, objects, ("submit", str(new)), now=NOW)
    assert effects(found) == {"new": ("placed", "", "n1"), "old": ("evicted", "n1", "")}
    (step,) = found.preemptions
    (victim,) = step.victims
    assert (victim.pod, victim.ran_s, victim.again) == ("default/old", 7200.0, "")
    assert victim.budgets == ("default/of-old",)
    assert found.summary["violations"] == 1
    assert found.summary["evicted"] == 1
    alone = asked(tmp_path, objects, ("submit", str(new)), preemption=False)
    assert effects(alone) == {"new": ("unplaced", "", "")}


def test_a_chain_of_preemptions(tmp_path: Path) -> None:
    """The middle pod is evicted, and evicts the lowest one, which finds no node."""
    objects = [
        node("n1", cpu="4"),
        node("n2", cpu="3"),
        low("middle", "n1", cpu="3", priority=5),
        low("lowest", "n2", cpu="3", priority=1),
        pod("top", "4", priority=9),
    ]
    found = cluster(tmp_path, *objects).preempt_preview("default/top")
    found_steps = [(s.preemptor, s.node, s.victims[0].pod, s.because, s.depth) for s in found.steps]
    assert found_steps == [
        ("default/top", "n1", "default/middle", "", 1),
        ("default/middle", "n2", "default/lowest", "default/top", 2),
    ]
    assert [step.victims[0].again for step in found.steps] == ["n2", ""]
    assert [one.pod for one in found.pending] == ["default/lowest"]
    assert found.summary["depth"] == 2
    assert repr(found) == "PreemptionPreview(1 of 1 pod placed, 2 pods evicted)"


def test_a_bare_victim_is_lost(tmp_path: Path) -> None:
    objects = [node("n1"), pod("old", "4", on="n1"), pod("new", "4", priority=1)]
    found = cluster(tmp_path, *objects).preempt_preview("default/new")
    assert found.steps[0].victims[0].again is None
    assert found.summary["lost"] == 1


def test_a_pod_that_is_evicted_twice_is_a_loop(tmp_path: Path) -> None:
    """The middle pod flees to n2, where the second of the top pods evicts it again."""
    objects = [
        node("n1"),
        node("n2"),
        low("middle", "n1", priority=5),
        pod("top-a", "4", priority=9),
    ]
    new = write(tmp_path, pod("top-a2", "4", priority=9), pod("top-b", "4", priority=8), name="x")
    one = cluster(tmp_path, *objects[:3])
    found = one.preempt_preview(submit=new)
    # top-a2 takes the free node, top-b evicts the middle pod, which finds none.
    assert [step.victims[0].pod for step in found.steps] == ["default/middle"]
    assert found.loops == ()


def test_a_loop_is_detected_and_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A PostFilter plugin that evicts whatever is there: two pods evict each other."""
    file = tmp_path / "evict.py"
    file.write_text(
        "from stowplan.framework import OK, PostFilterResult\n\n\n"
        "class EvictAll:\n    name = 'EvictAll'\n\n"
        "    def post_filter(self, pod, snapshot, diagnosis, state):\n"
        "        nodes = snapshot.nodes\n"
        "        return PostFilterResult(OK, nodes.names[0], tuple(nodes.pods[0]))\n"
    )
    config = tmp_path / "config.yaml"
    config.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
        "profiles:\n- schedulerName: default-scheduler\n  plugins:\n"
        "    postFilter:\n      disabled: [{name: '*'}]\n      enabled: [{name: EvictAll}]\n"
    )
    path = write(tmp_path, node("n1"), low("a", "n1"), pod("b", "4", owner="of-b"))
    found = QueryableCluster.from_files(
        path, validate="ignore", config=config, plugins=[file]
    ).preempt_preview("default/b")
    assert found.loops == ("default/a",)
    assert [step.preemptor for step in found.steps] == ["default/b", "default/a", "default/b"]
    monkeypatch.setattr(preemption_chain, "ATTEMPTS_MAX", 1)
    cut = QueryableCluster.from_files(
        path, validate="ignore", config=config, plugins=[file]
    ).preempt_preview("default/b")
    assert cut.untried == ("pod default/a: the chain was cut",)


def test_a_higher_priority_preempts(tmp_path: Path) -> None:
    objects = [node("n1"), low("old", "n1"), pod("new", "4")]
    found = asked(tmp_path, objects, ("priority", "pod/new=100"))
    assert effects(found) == {"new": ("placed", "", "n1"), "old": ("evicted", "n1", "")}
    classes = [
        *objects,
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 7,
        },
    ]
    by_class = asked(tmp_path, classes, ("priority", "pod/new=high"))
    assert by_class.preemptions[0].priority == 7


# Queues.


def gang(name: str, queue: str, size: int) -> list[Tree]:
    group = {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {"minMember": 1, "queue": queue},
    }
    key = "scheduling.k8s.io/group-name"
    pods = [
        pod(f"{name}-{i}", annotations={key: name}, schedulerName="kube-batch") for i in range(size)
    ]
    return [group, *pods]


def queue(name: str, weight: int) -> Tree:
    return {
        "apiVersion": "scheduling.incubator.k8s.io/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"weight": weight},
    }


def test_the_weight_of_a_queue(tmp_path: Path) -> None:
    config = tmp_path / "batch.yaml"
    config.write_text(
        'actions: "allocate"\ntiers:\n- plugins:\n  - name: gang\n  - name: proportion\n'
    )
    objects = [
        node("n1", "4"),
        queue("ops", 1),
        queue("research", 1),
        *gang("a", "ops", 4),
        *gang("b", "research", 4),
    ]
    path = write(tmp_path, *objects)
    question = QueryableCluster.from_files(path, validate="ignore", config=config)
    found = question.what_if([("queue", "research.weight=3")])
    before, after = found.queues["research"].before, found.queues["research"].after
    assert (before.pods, after.pods) == (2, 3)
    assert after.requested["cpu"] == 3000
    assert found.queues["ops"].after.pending == 3
    assert (found.summary["placed"], found.summary["unplaced"]) == (1, 1)
    later = WhatIfOptions(timing=Timing(120.0))
    over_time = question.what_if([("queue", "research.weight=3")], options=later)
    assert over_time.queues["research"].after.pods == 3


# Virtual time.


def test_over_time_pods_end_and_others_start(tmp_path: Path) -> None:
    objects = [
        node("n1"),
        pod("a", "4", on="n1", started="2026-01-01T11:50:00Z", activeDeadlineSeconds=1200),
        pod("b", "4"),
    ]
    new = write(tmp_path, pod("c", "4", annotations={"stowplan.dev/run-seconds": "60"}), name="x")
    path = ("submit", str(new))
    soon = asked(tmp_path, objects, path, now=NOW, timing=Timing(300.0))
    assert effects(soon) == {"c": ("unplaced", "", "")}
    # At 600 s the running pod ends, b runs on: c waits. With a default b ends, too.
    later = asked(tmp_path, objects, path, now=NOW, timing=Timing(3600.0, default_s=900.0))
    (one,) = later.pods
    assert (one.pod, one.effect, one.target) == ("default/c", "placed", "n1")
    assert one.wait_s is not None
    assert 1500 < one.wait_s < 1600
    assert later.for_s == 3600.0
    assert later.summary["pending_before"] == 0


def test_over_time_victims_run_again(tmp_path: Path) -> None:
    objects = [node("n1"), low("old", "n1")]
    new = write(
        tmp_path,
        pod("new", "4", priority=9, annotations={"stowplan.dev/run-seconds": "60"}),
        name="new.json",
    )
    found = asked(tmp_path, objects, ("submit", str(new)), timing=Timing(600.0))
    by_pod = {one.pod: one for one in found.pods}
    assert by_pod["default/old"].effect == "evicted"
    assert by_pod["default/old"].by == "default/new"
    assert by_pod["default/old"].target == "n1"


# Python.


def test_copies_share_what_is_loaded(tmp_path: Path) -> None:
    first = cluster(tmp_path, node("n1"), node("n2"), pod("w", on="n2", owner="web"))
    assert repr(first.what_if([{"drain": "n2"}])) == "WhatIf(1 moved)"
    copy = first.with_changes([{"cordon": "n1"}])
    assert repr(copy.what_if([{"drain": "n2"}])) == "WhatIf(1 unplaced)"
    assert repr(first.what_if([("drain", "n2")])) == "WhatIf(1 moved)"
    assert repr(first.copy().what_if([{"cordon": "n1"}])) == "WhatIf(no difference)"
    loaded = {id(question.loaded) for question in first.shared}
    assert len(loaded) == 1
    assert first.shared[0].loaded.n_loads == 1
    assert first.explain("default/w").pod == "default/w"
    with pytest.raises(InputError, match="changes the scheduler"):
        first.with_changes([("config", "x.yaml")])


def test_frames(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("pandas")
    module.DataFrame = dict  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "pandas", module)
    one = cluster(tmp_path, node("n1"), pod("old", "4", on="n1"), pod("new", "4", priority=1))
    frame = one.what_if([("delete", "pod/old")]).to_frame("pandas")
    assert list(frame["effect"]) == ["placed", "deleted"]
    assert list(one.preempt_preview("default/new").to_frame("pandas")["pod"]) == ["default/old"]
