"""Sea: what happens to the cluster of a storm by itself: pods and nodes come, change and go."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from stowplan.fault_runs.fault_schedule import ScheduledFault
from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.testing.builders import node, pod
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int

NODES = ("n0", "n1", "n2", "n3")
PODS = tuple(f"p{i}" for i in range(14))
ZONES = ("a", "b")
POD_GC_DELAY = 8 * SECOND
"""How long pods outlive the node that they are bound to."""


class ChurnEvent(NamedTuple):
    """Something that will happen at a time."""

    at: int
    act: Callable[[ClusterChurn], None]

    def __call__(self, sea: ClusterChurn) -> None:
        """Let it happen."""
        self.act(sea)


class ClusterChurn:
    """The cluster of a storm. Nothing ends or changes by itself once it is calm."""

    def __init__(
        self, world: SimulatedCluster, schedulers: Sequence[SchedulerInstance], rng: RandomSource
    ) -> None:
        """schedulers: those that run."""
        self.world = world
        self.schedulers = schedulers
        self.is_quiet = False
        self._n_created = 0
        world.run_of = self._run_of
        for name in NODES[: random_int(rng, 2, 4)]:
            world.put_node(random_node(rng, name))

    def _run_of(self, one: Pod) -> int | None:
        said = one.metadata.annotations.get(RUN_ANNOTATION)
        return None if said is None or self.is_quiet else int(said) * SECOND

    def stop_changes(self) -> None:
        """From now on nobody comes, ends or changes, but for what has begun."""
        self.is_quiet = True

    # What comes by itself.

    def come(self, made: Pod) -> None:
        """A pod is made, unless there is one of its name."""
        if made.key not in self.world.pods:
            self._n_created += 1
            meta = replace(made.metadata, uid=f"{made.name}-{self._n_created}")
            self.world.put_pod(replace(made, metadata=meta))

    def change_node(self, changed: Node) -> None:
        """A node arrives, or has become another."""
        if not self.is_quiet:
            self.world.put_node(changed)

    def open_gate(self, choice: int) -> None:
        """A pod loses its gates."""
        gated = [one for one in self.world.pods.values() if one.spec.scheduling_gates]
        if gated:
            one = gated[choice % len(gated)]
            self.world.put_pod(replace(one, spec=replace(one.spec, scheduling_gates=())))

    # What others do.

    def apply_fault(self, fault: ScheduledFault) -> str:
        """A fault of the cluster; what it has struck, "" for nothing."""
        found: str = {
            "node vanishes": self._delete_node,
            "node flaps": self._make_unschedulable,
            "node changes": self._change_allocatable,
            "pod deleted": self._delete,
            "stranger binds": self._bind,
        }[fault.kind](fault)
        return found

    def _on(self, node: Node) -> str:
        """Whether some scheduler is about to bind a pod to a node."""
        journeys = (one for each in self.schedulers for _, one in each.scheduler.bindings)
        is_assumed = any(one.node == node.name for one in journeys)
        return "under an assumed pod" if is_assumed else "while nobody binds to it"

    def _state(self, one: Pod) -> str:
        if one.node_name:
            return "when bound"
        machines = [each.scheduler for each in self.schedulers]
        if any(one.uid in scheduler.bindings for scheduler in machines):
            return "when assumed"
        if any(one.uid in scheduler.extender_attempts for scheduler in machines):
            return "when awaiting an extender"
        return "when waiting"

    def _node(self, choice: int) -> Node | None:
        nodes = list(self.world.nodes.values())
        return nodes[choice % len(nodes)] if nodes else None

    def _delete_node(self, fault: ScheduledFault) -> str:
        one = self._node(fault.choice)
        if one is None:
            return ""
        found = self._on(one)
        self.world.drop_node(one.name)
        self.world.event_queue.after(
            fault.choice * POD_GC_DELAY // 1000, self._delete_pods_of, one.name
        )
        if fault.choice % 3:
            self.world.event_queue.after(fault.span, self._put_back, one)
        return found

    def _put_back(self, one: Node) -> None:
        if one.name not in self.world.nodes:
            self.world.put_node(one)

    def _delete_pods_of(self, name: str) -> None:
        """The pods of a node that is no more are removed."""
        if name not in self.world.nodes:
            self.world.clear_node(name, "node left")
        # One that came back keeps what it had.

    def _make_unschedulable(self, fault: ScheduledFault) -> str:
        """A node is not ready for a while: nobody new may go there."""
        one = self._node(fault.choice)
        if one is None:
            return ""
        self.world.put_node(replace(one, spec=replace(one.spec, unschedulable=True)))
        self.world.event_queue.after(fault.span, self._uncordon, one.name)
        return self._on(one)

    def _uncordon(self, name: str) -> None:
        one = self.world.nodes.get(name)
        if one is not None:
            self.world.put_node(replace(one, spec=replace(one.spec, unschedulable=False)))

    def _change_allocatable(self, fault: ScheduledFault) -> str:
        """A node offers another amount for a while, or for ever."""
        one = self._node(fault.choice)
        if one is None:
            return ""
        before = one.status.allocatable["cpu"]
        self._offer(one.name, str(fault.choice % 6))
        if fault.choice % 2:
            self.world.event_queue.after(fault.span, self._offer, one.name, before)
        return self._on(one)

    def _offer(self, name: str, cpu: str) -> None:
        one = self.world.nodes.get(name)
        if one is not None:
            offered = {**one.status.allocatable, "cpu": cpu}
            self.world.put_node(replace(one, status=replace(one.status, allocatable=offered)))

    def _delete(self, fault: ScheduledFault) -> str:
        pods = list(self.world.pods)
        if not pods:
            return ""
        key = pods[fault.choice % len(pods)]
        found = self._state(self.world.pods[key])
        self.world.delete_pod(key, "deleted")
        return found

    def _bind(self, fault: ScheduledFault) -> str:
        """Somebody else binds a pod, to a node or to nowhere."""
        waiting = [one for one in self.world.pods.values() if not one.node_name]
        names = (*self.world.nodes, "nowhere")
        if not waiting:
            return ""
        one = waiting[fault.choice % len(waiting)]
        found = self._state(one)
        self.world.bind(one.key, one.uid, names[fault.choice // 3 % len(names)])
        return found


def churn_events(
    rng: RandomSource, until: int, labels: tuple[tuple[str, str], ...]
) -> Iterator[ChurnEvent]:
    """What happens by itself during a storm, in any order."""
    for _ in range(random_int(rng, 5, 30)):
        made = random_pod(rng, labels)
        yield ChurnEvent(_time(rng, until), lambda sea, made=made: sea.come(made))  # type: ignore[misc]
    for _ in range(random_int(rng, 0, 6)):
        changed = random_node(rng, pick(rng, NODES))
        yield ChurnEvent(_time(rng, until), lambda sea, to=changed: sea.change_node(to))  # type: ignore[misc]
    for _ in range(random_int(rng, 0, 4)):
        choice = random_int(rng, 0, 999)
        yield ChurnEvent(_time(rng, until), lambda sea, which=choice: sea.open_gate(which))  # type: ignore[misc]


def _time(rng: RandomSource, until: int) -> int:
    """Whole milliseconds; often in the first moments, when much comes together."""
    span = until if chance(rng, 2) else until // 10
    return random_int(rng, 0, span // 1_000_000) * 1_000_000


def random_node(rng: RandomSource, name: str) -> Node:
    """A node of a few CPUs."""
    return node(
        name,
        cpu=str(random_int(rng, 1, 5)),
        memory=f"{random_int(rng, 2, 8)}Gi",
        pods=random_int(rng, 2, 6),
        zone=pick(rng, ZONES),
        labels={"tide": pick(rng, ("high", "low"))},
        taints=("berth=reserved:NoSchedule",) if chance(rng, 6) else (),
    )


def random_pod(rng: RandomSource, labels: tuple[tuple[str, str], ...]) -> Pod:
    """A pod that asks for little, for a place, or for a lot, with some of these labels."""
    runs = {RUN_ANNOTATION: str(random_int(rng, 1, 40))} if not chance(rng, 3) else {}
    selector = {"topology.kubernetes.io/zone": pick(rng, ZONES)} if chance(rng, 5) else None
    made = pod(
        pick(rng, PODS),
        cpu=str(random_int(rng, 0, 3)),
        memory=f"{random_int(rng, 0, 3)}Gi",
        priority=pick(rng, (0, 0, 0, 5, 50, 100)),
        labels={key: value for key, value in labels if chance(rng, 6)},
        node_selector=selector,
        tolerations=("berth",) if chance(rng, 4) else (),
        gates=("later",) if chance(rng, 12) else (),
    )
    return replace(made, metadata=replace(made.metadata, annotations=runs))
