"""A cluster to which things happen, and pods that preempt there, asked of two frameworks."""

from __future__ import annotations

import datetime
from typing import Any

from msgspec.structs import replace

from stowplan.assembly import registry
from stowplan.assembly.in_tree import DEFAULT_PLUGINS
from stowplan.columns import NodeTable
from stowplan.cycle import filter_pod
from stowplan.cycle.decision import run_post_filters
from stowplan.framework import FeatureGates, Framework, Nominations, ObjectStore, Profile, Snapshot
from stowplan.framework.extension_points import points_of
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.workload import PodDisruptionBudget
from stowplan.plugins.preemption.default_preemption import PreemptionReport
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int, sample

NAMES = ("a", "b", "c", "d", "e", "f", "g")
GPU = "example.com/gpu"
_BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)

ASKS: tuple[dict[str, str], ...] = (
    {"cpu": "1"},
    {"cpu": "500m", "memory": "1Gi"},
    {"cpu": "2", "memory": "3Gi"},
    {},
    {"cpu": "1", GPU: "1"},
    {"memory": "7Ei"},
)
"""What pods ask for; of the last a node holds one, and two are more than 64 bits hold."""

APART = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
ANTI = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [APART]}}

PREEMPTORS: tuple[dict[str, Any], ...] = (
    {"requests": {"cpu": "2"}},
    {"requests": {"cpu": "3", "memory": "3Gi"}},
    {"requests": {}},
    {"requests": {"cpu": "1", GPU: "2"}},
    {"requests": {"cpu": "1"}, "ports": [{"hostPort": 80}]},
    {"requests": {"cpu": "2"}, "spec": {"nodeSelector": {"disk": "ssd"}}},
    {"requests": {"memory": "7Ei"}},
    {"requests": {"cpu": "1"}, "spec": {"affinity": ANTI}},
    {"requests": {"cpu": "64"}},
)
"""The sixth minds what nodes are, the eighth looks beyond the row, the last fits nowhere."""


def made_node(rng: RandomSource, name: str) -> Node:
    offers = {"cpu": pick(rng, ("4", "6")), "memory": pick(rng, ("8Gi", "7Ei"))}
    offers |= {"pods": pick(rng, ("110", "4", "6")), GPU: pick(rng, ("2", "0"))}
    labels = {"kubernetes.io/hostname": name, "disk": pick(rng, ("ssd", "hdd"))}
    taints = [{"key": "k", "effect": "NoSchedule"}] if chance(rng, 6) else []
    spec = {"unschedulable": chance(rng, 8), "taints": taints}
    return convert(
        {
            "metadata": {"name": name, "labels": labels},
            "spec": spec,
            "status": {"allocatable": offers},
        },
        Node,
    )


def made_pod(name: str, requests: dict[str, str], **parts: Any) -> Pod:
    """parts: on, priority, labels, ports, started (seconds, None for not yet), spec."""
    container = {
        "name": "c",
        "resources": {"requests": requests},
        "ports": parts.get("ports", []),
    }
    spec = {"containers": [container], "priority": parts.get("priority", 0)}
    spec |= {"nodeName": parts.get("on", "")} | parts.get("spec", {})
    started = parts.get("started")
    start = None if started is None else _BEGIN + datetime.timedelta(seconds=started)
    pod = convert(
        {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": name,
                "labels": parts.get("labels", {}),
            },
            "spec": spec,
        },
        Pod,
    )
    return replace(pod, status=replace(pod.status, start_time=start))


def made_budget(name: str, app: str, allowed: int, disrupted: tuple[str, ...]) -> Any:
    return convert(
        {
            "metadata": {"name": name, "namespace": "default"},
            "spec": {"selector": {"matchLabels": {"app": app}}},
            "status": {
                "disruptionsAllowed": allowed,
                "disruptedPods": dict.fromkeys(disrupted, "2026-01-01T00:00:00Z"),
            },
        },
        PodDisruptionBudget,
    )


def framework(*, columns: bool, args: Any = None, plugins: tuple[Any, ...] = ()) -> Framework:
    """The default profile, with other plugins beside its own."""
    full = registry()
    for plugin in plugins:
        full.register(plugin)
    points: dict[str, tuple[Any, ...]] = {}
    for use in (*DEFAULT_PLUGINS, *(type(DEFAULT_PLUGINS[0])(p.name) for p in plugins)):
        for point in points_of(full[use.name].plugin):
            points[point] = (*points.get(point, ()), use)
    given = {} if args is None else {"DefaultPreemption": args}
    return Framework(Profile("test", points, given), full, FeatureGates(), columns=columns)


class PreemptionWalk:
    """A cluster and what happens to it, by the dice."""

    def __init__(self, rng: RandomSource) -> None:
        self.rng = rng
        self.table = NodeTable()
        self.object_store = ObjectStore()
        self.nominations = Nominations()
        self.snapshot = Snapshot(self.table, self.object_store, self.nominations)
        # Few of them, so that each is asked about again when something has changed.
        self._kinds = [pick(rng, PREEMPTORS) | {"priority": pick(rng, (10, 100))} for _ in "ab"]
        self._n_pods = 0
        self._homes: dict[str, str] = {}
        for name in NAMES:
            self.table.add_node(made_node(rng, name))
            for _ in range(random_int(rng, 0, 5)):
                self._bind(name)
        self.table.refresh()

    def step(self) -> None:
        """Something happens."""
        happenings = (
            *(self._pod_comes, self._pod_goes, self._node_changes, self._nomination_goes),
            *(self._nomination_comes,) * 2,
            *(self._pod_changes, self._budget_changes) * 3,
        )
        pick(self.rng, happenings)()
        self.table.refresh()

    def preemptor(self) -> Pod:
        """A pending pod; now and then one that is nominated to a node already."""
        return made_pod(f"high-{random_int(self.rng, 0, 3)}", **pick(self.rng, self._kinds))

    def preempt(self, pod: Pod, node_name: str, victims: list[str]) -> None:
        """What the scheduler does when a preemption has been decided."""
        for uid in victims:
            self._remove(uid)
        self.nominations.add(pod, node_name)

    def _bind(self, name: str) -> None:
        rng = self.rng
        self._n_pods += 1
        made = made_pod(
            f"low-{self._n_pods}",
            pick(rng, ASKS[:5]) if not chance(rng, 12) else ASKS[5],
            on=name,
            priority=pick(rng, (0, 0, 0, -5, 5, 50)),
            labels={"app": pick(rng, ("x", "y"))} if not chance(rng, 3) else {},
            ports=[{"hostPort": pick(rng, (80, 81))}] if chance(rng, 6) else [],
            started=pick(rng, (1, 1, 1, 2, None)),
        )
        self.table.add_pod(made)
        self._homes[made.uid] = name

    def _remove(self, uid: str) -> None:
        self.table.remove_pod(uid)
        del self._homes[uid]

    def _pod_comes(self) -> None:
        self._bind(pick(self.rng, NAMES))

    def _pod_goes(self) -> None:
        if self._homes:
            self._remove(pick(self.rng, tuple(self._homes)))

    def _pod_changes(self) -> None:
        """Of most changes nobody takes notice, but the pod stands last on its node from then on."""
        if not self._homes:
            return
        info = self.table.pod(pick(self.rng, tuple(self._homes)))
        assert info is not None
        pod, labels = info.pod, {"app": pick(self.rng, ("x", "y"))}
        if chance(self.rng, 6):
            pod = replace(pod, metadata=replace(pod.metadata, labels=labels))
        self.table.update_pod(replace(pod, status=replace(pod.status, phase="Running")))

    def _node_changes(self) -> None:
        name = pick(self.rng, NAMES)
        if self.table.row(name) < 0:
            self.table.add_node(made_node(self.rng, name))
        elif chance(self.rng, 2):
            self.table.update_node(made_node(self.rng, name))
        else:
            self.table.remove_node(name)

    def _budget_changes(self) -> None:
        rng = self.rng
        name, app = pick(rng, (("one", "x"), ("two", "y"), ("three", "x")))
        if self.object_store.find(PodDisruptionBudget, f"default/{name}") and chance(rng, 4):
            self.object_store.drop(PodDisruptionBudget, f"default/{name}")
            return
        disrupted = sample(rng, tuple(self._homes), 2) if chance(rng, 6) else ()
        self.object_store.put(made_budget(name, app, random_int(rng, 0, 2), disrupted))

    def _nomination_comes(self) -> None:
        self.nominations.add(self.preemptor(), pick(self.rng, NAMES))

    def _nomination_goes(self) -> None:
        self.nominations.drop(f"high-{random_int(self.rng, 0, 3)}")


def outcome_of(framework: Framework, pod: Pod, snapshot: Snapshot) -> dict[str, Any]:
    """All that an attempt says of filters and preemption, in plain values."""
    attempt = filter_pod(pod, snapshot, framework)
    assert attempt.verdicts is not None, attempt.errors
    names = snapshot.nodes.names
    found = run_post_filters(attempt)
    assert found is not None, "the profile has no PostFilter"
    report = attempt.state.find("DefaultPreemption")
    result: dict[str, Any] = {
        "verdicts": {names[row]: attempt.verdicts.status_of(row) for row in range(len(names))},
        "text": attempt.diagnosis.text(),
        "status": found.status,
        "nominated": found.nominated_node,
        "victims": [info.uid for info in found.victims],
    }
    if isinstance(report, PreemptionReport):
        for part in ("candidates", "best"):
            result[part] = {
                c.node_name: ([info.uid for info in c.victims], c.pdb_violations)
                for c in getattr(report, part)
            }
        result["statuses"] = dict(report.statuses)
    return result
