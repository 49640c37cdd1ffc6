"""Jobs with run limits: a session per event of virtual time, and an independent model of it.

The model is brute force on whole seconds: free CPUs per node and second, in which jobs are entered
in their order. It knows nothing of sessions.
"""

from __future__ import annotations

import datetime
from typing import NamedTuple

from msgspec.structs import replace

from stowplan.assembly.sessions.session_config import (
    batch_configuration,
    rules_for,
    session_options,
)
from stowplan.batch import Session
from stowplan.batch.state.standalone_inventory import StandaloneInventory
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, PodGroupSpec, Queue, QueueSpec
from stowplan.objects.timing.run_limits import RUN_ANNOTATION
from stowplan.testing import node, pod
from tests.scenarios import group_commands

SECOND = 10**9
START = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


class TimedJob(NamedTuple):
    """A gang whose pods need `cpu` CPUs each, which arrives and runs for exactly its limit."""

    name: str
    arrives: int
    size: int
    cpu: int
    runs: int


class TimedCluster:
    """An inventory on which sessions run when a job arrives or ends."""

    def __init__(self, cpus: tuple[int, ...], mode: str, max_jobs: int = 500) -> None:
        text = (
            f'actions: "backfill-timed"\nconfigurations: [{{name: backfill-timed, '
            f'arguments: {{mode: {mode}, maxJobs: "{max_jobs}"}}}}]\n'
            "tiers: [{plugins: [{name: gang}, {name: predicates}]}]"
        )
        self.options = session_options(batch_configuration(text, "test"), rules_for())
        self.inventory = StandaloneInventory("kube-batch", "default")
        self.inventory.queue_updated(
            Queue(metadata=ObjectMeta(name="default"), spec=QueueSpec(1, {}))
        )
        for number, cpu in enumerate(cpus):
            self.inventory.node_updated(node(f"n{number}", cpu=str(cpu)))
        self.started: dict[str, int] = {}
        self.nodes: dict[str, list[int]] = {}
        self.messages: list[str] = []
        self._ends: dict[str, int] = {}
        self._pods: dict[str, list[str]] = {}

    def run(self, jobs: list[TimedJob]) -> dict[str, int]:
        """When each job starts; jobs that never do are left out."""
        waiting = sorted(jobs, key=lambda job: job.arrives)
        for _ in range(1000):
            times = [*self._ends.values()] + [job.arrives for job in waiting[:1]]
            if not times:
                return self.started
            now = min(times)
            self._end(now)
            while waiting and waiting[0].arrives <= now:
                self._arrive(waiting.pop(0))
            self.session(now)
            for job in jobs:
                if job.name in self.started and self.started[job.name] == now:
                    self._ends[job.name] = now + job.runs
        raise AssertionError("the jobs do not end")

    def session(self, now: int) -> dict[str, str]:
        inventory = self.inventory
        inventory.now = now * SECOND
        inventory.bound.clear()
        inventory.evicted.clear()
        session = Session(inventory.open(), self.options, inventory, f"s{now}")
        session.run()
        _, notes = session.close()
        self.messages = [note.message for note in notes]
        inventory.settle()
        placed = {task.pod.name: task.node for task in inventory.bound}
        for task in list(inventory.bound):
            bound = replace(
                task.pod,
                spec=replace(task.pod.spec, node_name=task.node),
                status=replace(task.pod.status, phase="Running"),
            )
            inventory.binding(task.uid, task.node)
            inventory.pod_updated(bound)
            name = task.pod.name.rpartition("-")[0]
            self.started.setdefault(name, now)
            self.nodes.setdefault(name, []).append(int(task.node.removeprefix("n")))
        return placed

    def _arrive(self, job: TimedJob) -> None:
        created = START + datetime.timedelta(seconds=job.arrives)
        meta = ObjectMeta(name=job.name, namespace="default", creation_timestamp=created)
        self.inventory.group_updated(
            PodGroup(metadata=meta, spec=PodGroupSpec(min_member=job.size, queue="default"))
        )
        self._pods[job.name] = []
        for number in range(job.size):
            made = member(f"{job.name}-{number}", job.name, job.cpu, job.runs, job.arrives)
            self._pods[job.name].append(made.uid)
            self.inventory.pod_updated(made)

    def _end(self, now: int) -> None:
        for name in [name for name, end in self._ends.items() if end <= now]:
            del self._ends[name]
            for uid in self._pods[name]:
                self.inventory.pod_deleted(uid)
            self.inventory.group_deleted(f"default/{name}")


def member(name: str, group: str, cpu: int, runs: int | None, created: int = 0) -> Pod:
    made = pod(name, cpu=str(cpu), scheduler="kube-batch", created_at=created)
    marks = {**group_commands.annotations(group)}
    if runs is not None:
        marks[RUN_ANNOTATION] = str(runs)
    return replace(
        made,
        metadata=replace(made.metadata, annotations=marks),
        status=replace(made.status, phase="Pending"),
    )


class BruteForce:
    """Free CPUs per node and second."""

    def __init__(self, cpus: tuple[int, ...], horizon: int) -> None:
        self.free = [[cpu] * horizon for cpu in cpus]

    def place(self, job: TimedJob, start: int) -> list[int] | None:
        """Nodes in their order, or None where the job does not fit from `start` on."""
        left = [min(free[start : start + job.runs]) for free in self.free]
        nodes: list[int] = []
        for _ in range(job.size):
            fits = [at for at, free in enumerate(left) if free >= job.cpu]
            if not fits:
                return None
            left[fits[0]] -= job.cpu
            nodes.append(fits[0])
        return nodes

    def enter(self, job: TimedJob, start: int, nodes: list[int]) -> None:
        for at in nodes:
            for second in range(start, start + job.runs):
                self.free[at][second] -= job.cpu


def horizon_of(jobs: list[TimedJob]) -> int:
    """A second by which all jobs have ended."""
    return max(job.arrives for job in jobs) + 2 * sum(job.runs for job in jobs) + 1


def earliest(model: BruteForce, job: TimedJob, first: int) -> tuple[int, list[int]]:
    """The first second from `first` on at which a job fits, and its nodes."""
    for start in range(first, first + 10_000):
        nodes = model.place(job, start)
        if nodes is not None:
            return start, nodes
    raise AssertionError(f"{job} never fits")


def conservative(cpus: tuple[int, ...], jobs: list[TimedJob]) -> dict[str, int]:
    """Every job at the earliest time that those before it leave."""
    model = BruteForce(cpus, horizon_of(jobs))
    starts: dict[str, int] = {}
    for job in jobs:
        starts[job.name], nodes = earliest(model, job, job.arrives)
        model.enter(job, starts[job.name], nodes)
    return starts


def strict(cpus: tuple[int, ...], jobs: list[TimedJob]) -> dict[str, int]:
    """No job before one that is before it."""
    model = BruteForce(cpus, horizon_of(jobs))
    starts: dict[str, int] = {}
    latest = 0
    for job in jobs:
        latest, nodes = earliest(model, job, max(job.arrives, latest))
        starts[job.name] = latest
        model.enter(job, latest, nodes)
    return starts


def easy(cpus: tuple[int, ...], jobs: list[TimedJob]) -> dict[str, int]:
    """At every event: in order until one waits; of the others those that do not delay that one."""
    model = BruteForce(cpus, horizon_of(jobs))
    starts: dict[str, int] = {}
    events = {job.arrives for job in jobs}
    while events:
        now = min(events)
        events.discard(now)
        head: tuple[TimedJob, int, list[int]] | None = None
        for job in jobs:
            if job.name in starts or job.arrives > now:
                continue
            nodes = model.place(job, now)
            if nodes is not None:
                model.enter(job, now, nodes)
                starts[job.name] = now
                events.add(now + job.runs)
            elif head is None:
                head = (job, *earliest(model, job, now + 1))
                model.enter(*head)
        if head is not None:
            model.enter(head[0]._replace(cpu=-head[0].cpu), head[1], head[2])
    return starts
