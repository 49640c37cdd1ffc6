"""Why pods do not start: never, or not before the horizon of a forecast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from stowplan.assembly.build import frameworks_for
from stowplan.assembly.deciders import Deciders
from stowplan.config.queue_models.scheduler_hints import no_profile
from stowplan.cycle.attempt import filter_pod
from stowplan.forecast.explain_job import explain_job
from stowplan.framework import Framework, Snapshot
from stowplan.framework.deciders.tasks import group_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.insight.pod_owners import NO_OWNER, owner_text
from stowplan.objects.pod import Pod

SESSIONS_MAX = 20
"""Jobs for which a session is run; of the others only the scheduler's last message is given."""
HOLDERS_LISTED = 3


class StartReasons(NamedTuple):
    """Reasons of a pod that does not start. is_never: neither time nor the end of other
    pods changes it."""

    is_never: bool
    texts: tuple[str, ...]


class StartFailures:
    """Finds the reasons of pods that do not start, once per job.

    nodes: those that there may ever be. endless: running pods that do not end.
    """

    def __init__(
        self, cluster: Cluster, nodes: Cluster, deciders: Deciders, endless: Sequence[Pod]
    ) -> None:
        """nodes: a cluster with all nodes that an autoscaler may add."""
        self._cluster = cluster
        self._deciders = deciders
        self._endless = endless
        self._frameworks = frameworks_for(deciders.configuration, deciders.registry, deciders.gates)
        empty = Cluster(nodes.nodes, [], cluster.objects)
        self._empty = Snapshot(empty.table(), empty.object_store())
        self._fits: dict[tuple[str, int], bool] = {}
        self._of_job: dict[str, StartReasons] = {}
        self._n_sessions = 0

    def of(self, keys: Sequence[str], notes: Mapping[str, str]) -> dict[str, StartReasons]:
        """Key -> why the pod starts in no simulation. notes: key -> the scheduler's last message
        at the end of a simulation."""
        pods = {pod.key: pod for pod in self._cluster.pods}
        return {key: self._reasons(pods[key], notes.get(key, "")) for key in keys}

    def can_start(self, pod: Pod) -> bool:
        """False for a pod that has gates, no profile, or fits on no node of an empty cluster."""
        if pod.spec.scheduling_gates:
            return False
        name = pod.spec.scheduler_name
        batch = self._deciders.batch
        if batch is not None and name in batch.scheduler_names:
            return True
        framework = self._frameworks.get(name)
        return framework is not None and self._fits_without_others(pod, framework)

    def _fits_without_others(self, pod: Pod, framework: Framework) -> bool:
        # Pods of one template share their spec; filters read little else of a pod alone.
        key = pod.namespace, id(pod.spec)
        if key not in self._fits:
            found = filter_pod(_alone(pod), self._empty, framework).passed
            self._fits[key] = bool(found.shape[0])
        return self._fits[key]

    def _reasons(self, pod: Pod, note: str) -> StartReasons:
        if pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            return StartReasons(True, (f"waits for its scheduling gates: {gates}",))
        name = pod.spec.scheduler_name
        batch = self._deciders.batch
        if batch is not None and name in batch.scheduler_names:
            return self._of_session(pod, note)
        framework = self._frameworks.get(name)
        if framework is None:
            return StartReasons(True, (no_profile(name),))
        if not self._fits_without_others(pod, framework):
            text = "no node fits, even without other pods" + (f": {note}" if note else "")
            return StartReasons(True, (text,))
        return StartReasons(False, (*((note,) if note else ()), *self._holders()))

    def _of_session(self, pod: Pod, note: str) -> StartReasons:
        """The reasons of its job, of which one session asks."""
        owner = owner_text(pod)
        job = group_of(pod) or (pod.key if owner == NO_OWNER else f"{pod.namespace}/{owner}")
        found = self._of_job.get(job)
        if found is None and self._n_sessions < SESSIONS_MAX:
            self._n_sessions += 1
            explained = explain_job(pod.key, self._cluster, config=self._deciders, changes=False)
            found = StartReasons(bool(explained.never), explained.never)
            if not found.texts and explained.job is not None and explained.job.message:
                found = StartReasons(False, (explained.job.message, *self._holders()))
            self._of_job[job] = found
        if found is not None and found.texts:
            return found
        return StartReasons(False, (note,) if note else ())

    def _holders(self) -> tuple[str, ...]:
        if not self._endless:
            return ()
        keys = [pod.key for pod in self._endless]
        names = ", ".join(keys[:HOLDERS_LISTED])
        more = ", ..." if len(keys) > HOLDERS_LISTED else ""
        pods = count_of(len(keys), "running pod does", "running pods do")
        return (f"{pods} not end: {names}{more}",)


def _alone(pod: Pod) -> Pod:
    """The pod without affinity to others, which are not in an empty cluster."""
    affinity = pod.spec.affinity
    if affinity is None or affinity.pod_affinity is None:
        return pod
    spec = replace(pod.spec, affinity=replace(affinity, pod_affinity=None))
    return replace(pod, spec=spec)
