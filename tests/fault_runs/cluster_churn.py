"""Cluster churn of a fault run: pods and nodes are created, changed and deleted at random."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.testing.builders import node, pod
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int
from tests.fault_runs.fault_schedule import ScheduledFault

NODES = ("n0", "n1", "n2", "n3")
PODS = tuple(f"p{i}" for i in range(14))
ZONES = ("a", "b")
POD_GC_DELAY = 8 * SECOND
"""Delay of the pod garbage collector after a node is deleted."""


class ChurnEvent(NamedTuple):
    """A change of the cluster at a time."""

    at: int
    act: Callable[[ClusterChurn], None]

    def __call__(self, churn: ClusterChurn) -> None:
        """Apply the change."""
        self.act(churn)


class ClusterChurn:
    """Applies churn to the cluster of a fault run, until `stop_changes`."""

    def __init__(
        self, cluster: SimulatedCluster, schedulers: Sequence[SchedulerInstance], rng: RandomSource
    ) -> None:
        """schedulers: those that run."""
        self.cluster = cluster
        self.schedulers = schedulers
        self.is_quiet = False
        self._n_created = 0
        cluster.run_of = self._run_of
        for name in NODES[: random_int(rng, 2, 4)]:
            cluster.put_node(random_node(rng, name))

    def _run_of(self, one: Pod) -> int | None:
        run_s = one.metadata.annotations.get(RUN_ANNOTATION)
        return None if run_s is None or self.is_quiet else int(run_s) * SECOND

    def stop_changes(self) -> None:
        """Stop creating, ending and changing objects, except for what has begun."""
        self.is_quiet = True

    # Churn.

    def create_pod(self, made: Pod) -> None:
        """Create a pod unless one of its name exists."""
        if made.key not in self.cluster.pods:
            self._n_created += 1
            meta = replace(made.metadata, uid=f"{made.name}-{self._n_created}")
            self.cluster.put_pod(replace(made, metadata=meta))

    def change_node(self, changed: Node) -> None:
        """Create or replace a node."""
        if not self.is_quiet:
            self.cluster.put_node(changed)

    def open_gate(self, choice: int) -> None:
        """Remove the scheduling gates of a pod."""
        gated = [one for one in self.cluster.pods.values() if one.spec.scheduling_gates]
        if gated:
            one = gated[choice % len(gated)]
            self.cluster.put_pod(replace(one, spec=replace(one.spec, scheduling_gates=())))

    # Faults of the cluster.

    def apply_fault(self, fault: ScheduledFault) -> str:
        """Apply a fault of the cluster; returns what it has hit, "" for nothing."""
        found: str = {
            "node vanishes": self._delete_node,
            "node flaps": self._make_unschedulable,
            "node changes": self._change_allocatable,
            "pod deleted": self._delete,
            "stranger binds": self._bind,
        }[fault.kind](fault)
        return found

    def _on(self, node: Node) -> str:
        """Whether a scheduler has assumed a pod on the node, as a phrase for counting."""
        records = (one for each in self.schedulers for _, one in each.scheduler.bindings)
        is_assumed = any(one.binding.node == node.name for one in records)
        return "under an assumed pod" if is_assumed else "without an assumed pod"

    def _state(self, one: Pod) -> str:
        if one.node_name:
            return "when bound"
        schedulers = [each.scheduler for each in self.schedulers]
        if any(one.uid in scheduler.bindings for scheduler in schedulers):
            return "when assumed"
        if any(one.uid in scheduler.extender_attempts for scheduler in schedulers):
            return "when awaiting an extender"
        return "when waiting"

    def _node(self, choice: int) -> Node | None:
        nodes = list(self.cluster.nodes.values())
        return nodes[choice % len(nodes)] if nodes else None

    def _delete_node(self, fault: ScheduledFault) -> str:
        one = self._node(fault.choice)
        if one is None:
            return ""
        found = self._on(one)
        self.cluster.drop_node(one.name)
        self.cluster.event_queue.after(
            fault.choice * POD_GC_DELAY // 1000, self._delete_pods_of, one.name
        )
        if fault.choice % 3:
            self.cluster.event_queue.after(fault.span, self._restore_node, one)
        return found

    def _restore_node(self, one: Node) -> None:
        if one.name not in self.cluster.nodes:
            self.cluster.put_node(one)

    def _delete_pods_of(self, name: str) -> None:
        """Delete the pods of a node that does not exist; a node that came back keeps its pods."""
        if name not in self.cluster.nodes:
            self.cluster.clear_node(name, "node left")

    def _make_unschedulable(self, fault: ScheduledFault) -> str:
        """Cordon a node for a while."""
        one = self._node(fault.choice)
        if one is None:
            return ""
        self.cluster.put_node(replace(one, spec=replace(one.spec, unschedulable=True)))
        self.cluster.event_queue.after(fault.span, self._uncordon, one.name)
        return self._on(one)

    def _uncordon(self, name: str) -> None:
        one = self.cluster.nodes.get(name)
        if one is not None:
            self.cluster.put_node(replace(one, spec=replace(one.spec, unschedulable=False)))

    def _change_allocatable(self, fault: ScheduledFault) -> str:
        """Change the allocatable CPU of a node, for a while or for good."""
        one = self._node(fault.choice)
        if one is None:
            return ""
        before = one.status.allocatable["cpu"]
        self._set_cpu(one.name, str(fault.choice % 6))
        if fault.choice % 2:
            self.cluster.event_queue.after(fault.span, self._set_cpu, one.name, before)
        return self._on(one)

    def _set_cpu(self, name: str, cpu: str) -> None:
        one = self.cluster.nodes.get(name)
        if one is not None:
            allocatable = {**one.status.allocatable, "cpu": cpu}
            self.cluster.put_node(replace(one, status=replace(one.status, allocatable=allocatable)))

    def _delete(self, fault: ScheduledFault) -> str:
        pods = list(self.cluster.pods)
        if not pods:
            return ""
        key = pods[fault.choice % len(pods)]
        found = self._state(self.cluster.pods[key])
        self.cluster.delete_pod(key, "deleted")
        return found

    def _bind(self, fault: ScheduledFault) -> str:
        """Another client binds a pod, to a node or to a name that does not exist."""
        waiting = [one for one in self.cluster.pods.values() if not one.node_name]
        names = (*self.cluster.nodes, "nowhere")
        if not waiting:
            return ""
        one = waiting[fault.choice % len(waiting)]
        found = self._state(one)
        self.cluster.bind(one.key, one.uid, names[fault.choice // 3 % len(names)])
        return found


def churn_events(
    rng: RandomSource, until: int, labels: tuple[tuple[str, str], ...]
) -> Iterator[ChurnEvent]:
    """Random churn events of a run, unordered."""
    for _ in range(random_int(rng, 5, 30)):
        made = random_pod(rng, labels)
        yield ChurnEvent(_time(rng, until), lambda churn, made=made: churn.create_pod(made))  # type: ignore[misc]
    for _ in range(random_int(rng, 0, 6)):
        changed = random_node(rng, pick(rng, NODES))
        yield ChurnEvent(_time(rng, until), lambda churn, to=changed: churn.change_node(to))  # type: ignore[misc]
    for _ in range(random_int(rng, 0, 4)):
        choice = random_int(rng, 0, 999)
        yield ChurnEvent(_time(rng, until), lambda churn, which=choice: churn.open_gate(which))  # type: ignore[misc]


def _time(rng: RandomSource, until: int) -> int:
    """A random time in whole milliseconds; half of them in the first tenth."""
    span = until if chance(rng, 2) else until // 10
    return random_int(rng, 0, span // 1_000_000) * 1_000_000


def random_node(rng: RandomSource, name: str) -> Node:
    """A node with 1 to 5 CPUs."""
    return node(
        name,
        cpu=str(random_int(rng, 1, 5)),
        memory=f"{random_int(rng, 2, 8)}Gi",
        pods=random_int(rng, 2, 6),
        zone=pick(rng, ZONES),
        labels={"tier": pick(rng, ("high", "low"))},
        taints=("dedicated=reserved:NoSchedule",) if chance(rng, 6) else (),
    )


def random_pod(rng: RandomSource, labels: tuple[tuple[str, str], ...]) -> Pod:
    """A pod with random requests, priority, selector and some of these labels."""
    runs = {RUN_ANNOTATION: str(random_int(rng, 1, 40))} if not chance(rng, 3) else {}
    selector = {"topology.kubernetes.io/zone": pick(rng, ZONES)} if chance(rng, 5) else None
    made = pod(
        pick(rng, PODS),
        cpu=str(random_int(rng, 0, 3)),
        memory=f"{random_int(rng, 0, 3)}Gi",
        priority=pick(rng, (0, 0, 0, 5, 50, 100)),
        labels={key: value for key, value in labels if chance(rng, 6)},
        node_selector=selector,
        tolerations=("dedicated",) if chance(rng, 4) else (),
        gates=("later",) if chance(rng, 12) else (),
    )
    return replace(made, metadata=replace(made.metadata, annotations=runs))
