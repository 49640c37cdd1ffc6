"""Short workloads of a long run: jobs and gangs under names that are never reused."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from stowplan.inputs.annotations import RUN_ANNOTATION
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import PodGroup, PodGroupSpec
from stowplan.objects.workload import Namespace
from stowplan.testing.builders import HOSTNAME, ZONE, affinity, pod, spread, term
from stowplan.testing.generators.choices import chance, pick, random_int
from tests.fault_runs.configs import PERMIT_GATE

if TYPE_CHECKING:
    from tests.fault_runs.long_run import LongRun

JOB_EVERY, GANG_EVERY = 400 * SECOND, 3600 * SECOND
DEADLINE = 3600 * SECOND
"""Time after which pending pods of a workload are deleted."""
JOB = "batch.kubernetes.io/job-name"
BATCH = "kube-batch"


class ShortWorkloads:
    """Creates jobs and gangs, and deletes them after a deadline."""

    def __init__(self, run: LongRun) -> None:
        self._run = run
        self._n_workloads = 0
        self._pods: dict[str, set[str]] = {}
        self._of: dict[str, str] = {}
        self._namespace = ""
        run.every(round(JOB_EVERY / run.busy), self._job)
        run.every(round(GANG_EVERY / run.busy), self._gang)

    # Jobs.

    def _job(self) -> None:
        rng = self._run.rng
        self._n_workloads += 1
        name, count = f"job-{self._n_workloads}", random_int(rng, 1, 3)
        how = pick(rng, JOBS)(self._run, name)
        labels = {JOB: name, "controller-uid": f"{name}-uid", **how.pop("labels", {})}
        given = {"cpu": "500m", "memory": "512Mi", "image": f"{name}:1"} | how
        for index in range(count):
            made = pod(
                f"{name}-{index}", namespace=self._namespace_of_day(), labels=labels, **given
            )
            notes = {RUN_ANNOTATION: str(random_int(rng, 60, 1200))}
            self._create(name, replace(made, metadata=replace(made.metadata, annotations=notes)))
        self._run.event_queue.after(DEADLINE, self._delete, name)

    def _namespace_of_day(self) -> str:
        """The namespace of the day; the previous one is deleted."""
        name = f"day-{self._run.event_queue.now // (24 * DEADLINE)}"
        cluster = self._run.cluster
        if name != self._namespace:
            if self._namespace:
                cluster.drop_object(Namespace, self._namespace)
            self._namespace = name
            cluster.put_object(Namespace(ObjectMeta(name=name, uid=name, labels={"day": name})))
        return name

    # Gangs.

    def _gang(self) -> None:
        rng = self._run.rng
        self._n_workloads += 1
        name, count = f"gang-{self._n_workloads}", random_int(rng, 2, 5)
        meta = ObjectMeta(name=name, namespace="default", uid=name)
        self._run.cluster.put_object(PodGroup(meta, spec=PodGroupSpec(count, "default")))
        notes = {
            "scheduling.k8s.io/group-name": name,
            RUN_ANNOTATION: str(random_int(rng, 60, 1200)),
        }
        cpu = "200" if chance(rng, 5) else "1"
        for index in range(count):
            made = pod(f"{name}-{index}", cpu=cpu, memory="1Gi", labels={"gang": name})
            spec = replace(made.spec, scheduler_name=BATCH)
            meta = replace(made.metadata, annotations=notes)
            self._create(name, replace(made, metadata=meta, spec=spec))
        self._run.event_queue.after(DEADLINE, self._delete, name)

    # Pods of both.

    def _create(self, name: str, made: Pod) -> None:
        key = self._run.create_pod(made)
        self._pods.setdefault(name, set()).add(key)
        self._of[key] = name

    def ended(self, one: Pod) -> None:
        """A pod has ended; the PodGroup is deleted with the last pod of a gang."""
        name = self._of.pop(one.key, None)
        if name is None:
            return
        self._pods[name].discard(one.key)
        if not self._pods[name]:
            del self._pods[name]
            if name.startswith("gang"):
                self._run.cluster.drop_object(PodGroup, f"default/{name}")

    def _delete(self, name: str) -> None:
        for key in sorted(self._pods.get(name, ())):
            if key in self._run.cluster.pods:
                self._run.cluster.delete_pod(key, "deadline exceeded")

    def delete_all(self) -> None:
        """Delete all workloads."""
        for name in list(self._pods):
            self._delete(name)


# Pods of jobs.

Given = dict[str, Any]


def _plain(run: LongRun, name: str) -> Given:
    return {}


def _urgent(run: LongRun, name: str) -> Given:
    return {"cpu": "7", "priority": 1000}


def _giant(run: LongRun, name: str) -> Given:
    return {"cpu": "1000"}


def _gated(run: LongRun, name: str) -> Given:
    run.event_queue.after(600 * SECOND, _open, run, name)
    return {"gates": ["later"]}


def _open(run: LongRun, name: str) -> None:
    for one in list(run.cluster.pods.values()):
        if one.labels.get(JOB) == name and one.spec.scheduling_gates and not one.node_name:
            run.cluster.put_pod(replace(one, spec=replace(one.spec, scheduling_gates=())))


def _waits_at_permit(run: LongRun, name: str) -> Given:
    return {"labels": {PERMIT_GATE: "yes"}}


def _on_a_node(run: LongRun, name: str) -> Given:
    return {"node_selector": {HOSTNAME: pick(run.rng, list(run.cluster.nodes))}}


def _apart(run: LongRun, name: str) -> Given:
    return {"affinity": affinity(apart=[term(f"{JOB}={name}", HOSTNAME)])}


def _even(run: LongRun, name: str) -> Given:
    return {"spread": [spread(f"{JOB}={name}", ZONE)]}


def _in_a_pool(run: LongRun, name: str) -> Given:
    return {"affinity": affinity(prefer_nodes={f"pool in (pool-{name},ssd)": 10})}


JOBS: tuple[Callable[[LongRun, str], Given], ...] = (
    _plain,
    _plain,
    _plain,
    _urgent,
    _giant,
    _gated,
    _waits_at_permit,
    _on_a_node,
    _apart,
    _even,
    _in_a_pool,
)
