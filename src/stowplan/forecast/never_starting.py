"""Why pods never start: what neither the end of a running pod nor time changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from stowplan.assembly.build import frameworks_for
from stowplan.assembly.deciders import Deciders
from stowplan.cycle.attempt import filter_pod
from stowplan.forecast.explain_job import explain_job
from stowplan.framework import Snapshot
from stowplan.framework.deciders.tasks import group_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.insight.pod_owners import NO_OWNER, owner_text
from stowplan.objects.pod import Pod

SESSIONS_MAX = 20
"""Jobs for which a session is run; of the others only the scheduler's last message is given."""
HOLDERS_LISTED = 3


def never_reasons(
    keys: Sequence[str],
    cluster: Cluster,
    deciders: Deciders,
    notes: Mapping[str, str],
    endless: Sequence[Pod],
) -> dict[str, tuple[str, ...]]:
    """Key -> why the pod does not start, for pods that start in no simulation.

    notes: key -> the scheduler's last message at the end of a simulation. endless: running pods
    that do not end.
    """
    return _NeverReasons(cluster, deciders, notes, endless).of(keys) if keys else {}


class _NeverReasons:
    """Reasons, found once per job."""

    def __init__(
        self,
        cluster: Cluster,
        deciders: Deciders,
        notes: Mapping[str, str],
        endless: Sequence[Pod],
    ) -> None:
        self._cluster = cluster
        self._deciders = deciders
        self._notes = notes
        self._endless = endless
        self._frameworks = frameworks_for(deciders.configuration, deciders.registry)
        empty = Cluster(cluster.nodes, [], cluster.objects)
        self._empty = Snapshot(empty.table(), empty.object_store())
        self._of_job: dict[str, tuple[str, ...]] = {}
        self._n_sessions = 0

    def of(self, keys: Sequence[str]) -> dict[str, tuple[str, ...]]:
        pods = {pod.key: pod for pod in self._cluster.pods}
        return {key: self._reasons(pods[key]) for key in keys}

    def _reasons(self, pod: Pod) -> tuple[str, ...]:
        if pod.spec.scheduling_gates:
            gates = ", ".join(gate.name for gate in pod.spec.scheduling_gates)
            return (f"waits for its scheduling gates: {gates}",)
        name = pod.spec.scheduler_name
        batch = self._deciders.batch
        if batch is not None and name in batch.scheduler_names:
            return self._of_session(pod)
        framework = self._frameworks.get(name)
        if framework is None:
            return (f"no profile has schedulerName {name!r}",)
        note = self._notes.get(pod.key, "")
        if not filter_pod(pod, self._empty, framework).passed.shape[0]:
            return (f"no node fits, even without other pods: {note}",)
        return (note, *self._holders())

    def _of_session(self, pod: Pod) -> tuple[str, ...]:
        """The reasons of its job, of which one session asks."""
        owner = owner_text(pod)
        job = group_of(pod) or (pod.key if owner == NO_OWNER else f"{pod.namespace}/{owner}")
        found = self._of_job.get(job)
        if found is None and self._n_sessions < SESSIONS_MAX:
            self._n_sessions += 1
            explained = explain_job(pod.key, self._cluster, config=self._deciders, changes=False)
            found = explained.never
            if not found and explained.job is not None and explained.job.message:
                found = (explained.job.message, *self._holders())
            self._of_job[job] = found
        return found or tuple(text for text in (self._notes.get(pod.key, ""),) if text)

    def _holders(self) -> tuple[str, ...]:
        if not self._endless:
            return ()
        keys = [pod.key for pod in self._endless]
        names = ", ".join(keys[:HOLDERS_LISTED])
        more = ", ..." if len(keys) > HOLDERS_LISTED else ""
        pods = count_of(len(keys), "running pod does", "running pods do")
        return (f"{pods} not end: {names}{more}",)
