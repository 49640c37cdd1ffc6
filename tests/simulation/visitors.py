"""Visitors: jobs and gangs, each under a name of its own, that run for a while and are gone."""

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
from tests.fault_runs.fault_runs import TIDE

if TYPE_CHECKING:
    from tests.fault_runs.long_run import Month

JOB_EVERY, GANG_EVERY = 400 * SECOND, 3600 * SECOND
PATIENCE = 3600 * SECOND
"""How long somebody waits in vain before he gives up."""
JOB = "batch.kubernetes.io/job-name"
BATCH = "kube-batch"


class Visitors:
    """Those that are there, by what they belong to."""

    def __init__(self, month: Month) -> None:
        self._month = month
        self._n_come = 0
        self._pods: dict[str, set[str]] = {}
        self._of: dict[str, str] = {}
        self._namespace = ""
        month.every(round(JOB_EVERY / month.busy), self._job)
        month.every(round(GANG_EVERY / month.busy), self._gang)

    # Jobs.

    def _job(self) -> None:
        rng = self._month.rng
        self._n_come += 1
        name, count = f"job-{self._n_come}", random_int(rng, 1, 3)
        how = pick(rng, JOBS)(self._month, name)
        labels = {JOB: name, "controller-uid": f"{name}-uid", **how.pop("labels", {})}
        given = {"cpu": "500m", "memory": "512Mi", "image": f"{name}:1"} | how
        for index in range(count):
            made = pod(f"{name}-{index}", namespace=self._today(), labels=labels, **given)
            notes = {RUN_ANNOTATION: str(random_int(rng, 60, 1200))}
            self._come(name, replace(made, metadata=replace(made.metadata, annotations=notes)))
        self._month.event_queue.after(PATIENCE, self._give_up, name)

    def _today(self) -> str:
        """A namespace for each day; yesterday's is removed."""
        name = f"day-{self._month.event_queue.now // (24 * PATIENCE)}"
        world = self._month.world
        if name != self._namespace:
            if self._namespace:
                world.drop_object(Namespace, self._namespace)
            self._namespace = name
            world.put_object(Namespace(ObjectMeta(name=name, uid=name, labels={"day": name})))
        return name

    # Gangs.

    def _gang(self) -> None:
        rng = self._month.rng
        self._n_come += 1
        name, count = f"gang-{self._n_come}", random_int(rng, 2, 5)
        meta = ObjectMeta(name=name, namespace="default", uid=name)
        self._month.world.put_object(PodGroup(meta, spec=PodGroupSpec(count, "default")))
        notes = {
            "scheduling.k8s.io/group-name": name,
            RUN_ANNOTATION: str(random_int(rng, 60, 1200)),
        }
        cpu = "200" if chance(rng, 5) else "1"
        for index in range(count):
            made = pod(f"{name}-{index}", cpu=cpu, memory="1Gi", labels={"gang": name})
            spec = replace(made.spec, scheduler_name=BATCH)
            meta = replace(made.metadata, annotations=notes)
            self._come(name, replace(made, metadata=meta, spec=spec))
        self._month.event_queue.after(PATIENCE, self._give_up, name)

    # Both.

    def _come(self, name: str, made: Pod) -> None:
        key = self._month.come(made)
        self._pods.setdefault(name, set()).add(key)
        self._of[key] = name

    def ended(self, one: Pod) -> None:
        """A pod is no more, be it a visitor's or not; the last one of a gang takes its group."""
        name = self._of.pop(one.key, None)
        if name is None:
            return
        self._pods[name].discard(one.key)
        if not self._pods[name]:
            del self._pods[name]
            if name.startswith("gang"):
                self._month.world.drop_object(PodGroup, f"default/{name}")

    def _give_up(self, name: str) -> None:
        for key in sorted(self._pods.get(name, ())):
            if key in self._month.world.pods:
                self._month.world.delete_pod(key, "given up")

    def leave(self) -> None:
        """All go now."""
        for name in list(self._pods):
            self._give_up(name)


# What jobs ask for.

Given = dict[str, Any]


def _plain(month: Month, name: str) -> Given:
    return {}


def _urgent(month: Month, name: str) -> Given:
    return {"cpu": "7", "priority": 1000}


def _giant(month: Month, name: str) -> Given:
    return {"cpu": "1000"}


def _gated(month: Month, name: str) -> Given:
    month.event_queue.after(600 * SECOND, _open, month, name)
    return {"gates": ["later"]}


def _open(month: Month, name: str) -> None:
    for one in list(month.world.pods.values()):
        if one.labels.get(JOB) == name and one.spec.scheduling_gates and not one.node_name:
            month.world.put_pod(replace(one, spec=replace(one.spec, scheduling_gates=())))


def _tidal(month: Month, name: str) -> Given:
    return {"labels": {TIDE: "yes"}}


def _on_a_node(month: Month, name: str) -> Given:
    return {"node_selector": {HOSTNAME: pick(month.rng, list(month.world.nodes))}}


def _apart(month: Month, name: str) -> Given:
    return {"affinity": affinity(apart=[term(f"{JOB}={name}", HOSTNAME)])}


def _even(month: Month, name: str) -> Given:
    return {"spread": [spread(f"{JOB}={name}", ZONE)]}


def _in_a_pool(month: Month, name: str) -> Given:
    return {"affinity": affinity(prefer_nodes={f"pool in (pool-{name},ssd)": 10})}


JOBS: tuple[Callable[[Month, str], Given], ...] = (
    _plain,
    _plain,
    _plain,
    _urgent,
    _giant,
    _gated,
    _tidal,
    _on_a_node,
    _apart,
    _even,
    _in_a_pool,
)
