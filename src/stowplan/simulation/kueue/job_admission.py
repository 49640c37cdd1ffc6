"""Admission of a cluster's jobs by Kueue, before the scheduler sees their pods.

Cycles run until nothing changes. The pods of admitted jobs get the node selectors and tolerations
of their flavors; those of the others stay pending.

Source: sigs.k8s.io/kueue, pkg/podset.
"""

from __future__ import annotations

from collections.abc import Iterable, Set

from msgspec.structs import replace

from stowplan.batch.queue_models.kueue.admission_workload import (
    ADMITTED,
    EVICTED,
    AdmissionWorkload,
    PodSetDemand,
)
from stowplan.batch.queue_models.kueue.kueue_admission import KueueAdmission, KueueObjects
from stowplan.batch.queue_models.kueue.kueue_objects import (
    AdmissionCheck,
    Cohort,
    KueueClusterQueue,
    KueueNamespace,
    LocalQueue,
    ResourceFlavor,
    Topology,
    Workload,
)
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.batch.queue_models.kueue.reports.quota_reports import queue_reports
from stowplan.batch.queue_models.kueue.reports.usage_reports import uses_ahead
from stowplan.batch.queue_models.kueue.reports.workload_reports import (
    SUSPENDED,
    KueueReport,
    WorkloadReport,
    not_modelled,
    shortages_of,
    status_of,
    why_inactive,
    why_pending,
)
from stowplan.batch.queue_models.kueue.stopped_queues import stopped_by
from stowplan.controllers.kueue.kueue_kinds import (
    ADMISSION_GATE,
    TOPOLOGY_GATE,
    WORKLOAD_ANNOTATION,
)
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.importers.imported_objects import KUEUE_NOTE, namespace_of
from stowplan.inputs.input_error import InputError
from stowplan.insight.pod_placement import Placement
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import with_ready_condition
from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import GROUP_ANNOTATIONS, PodGroup, Queue
from stowplan.objects.workload import Namespace
from stowplan.simulation.kueue.admitted_cluster import JobAdmission
from stowplan.simulation.kueue.kueue_manifests import KUEUE_KINDS, KueueManifests
from stowplan.simulation.kueue.queued_jobs import (
    POD_GROUP,
    QueuedJob,
    is_of_pod_group,
    queued_jobs,
    time_of,
)

IDLE_MAX = 6
"""Cycles without effect after which nothing changes any more."""
_GATES = (ADMISSION_GATE, TOPOLOGY_GATE)
CYCLES_PER_WORKLOAD = 20
"""Cycles that are run at most: with `--compat kueue` some clusters never settle."""


def check_admission(cluster: Cluster) -> None:
    """Raise InputError without objects of Kueue."""
    if not cluster.kueue_objects:
        wanted = "manifests with ClusterQueues and LocalQueues (kueue.x-k8s.io)"
        raise InputError("kueue", "", "no objects of Kueue", wanted)


def admit_jobs(cluster: Cluster, options: KueueOptions) -> JobAdmission:
    """Admit the jobs of a cluster until nothing changes; raises InputError."""
    admission, jobs = admission_of(cluster, options)
    preempted: dict[str, str] = {}
    cycles = run_cycles(admission, preempted)
    by_key = {job.workload.key: job for job in jobs}
    positions = {
        key: i + 1 for one in admission.pending.values() for i, key in enumerate(one.in_order())
    }
    reports = {
        key: _report(by_key.get(key), one, admission, preempted, positions)
        for key, one in admission.workloads.items()
    }
    report = KueueReport(
        list(reports.values()), queue_reports(admission), cycles, not_modelled(admission)
    )
    return _decided(for_kueue(cluster), jobs, admission, reports, report)


def admission_of(
    cluster: Cluster, options: KueueOptions, namespaces: Iterable[str] = ()
) -> tuple[KueueAdmission, list[QueuedJob]]:
    """The state before the first cycle, and the jobs that need pods. namespaces: that are there
    beside those of the cluster. Raises InputError."""
    cluster = for_kueue(cluster)
    manifests = KueueManifests(cluster.kueue_objects)
    jobs = queued_jobs(cluster, manifests)
    admission = KueueAdmission(_objects(cluster, manifests, jobs, namespaces), options)
    for one in list(admission.workloads.values()):
        stopped = stopped_by(one, admission) if one.holds_quota else None
        if stopped is not None and (stopped.is_drained or not one.is_condition(ADMITTED)):
            one.set_condition(EVICTED, True, stopped.eviction, admission.now)
            admission.release(one.key)
    return admission, jobs


def _objects(
    cluster: Cluster,
    manifests: KueueManifests,
    jobs: list[QueuedJob],
    namespaces: Iterable[str] = (),
) -> KueueObjects:
    own = {job.workload.key: job.workload for job in jobs}
    workloads = {one.key: one for one in manifests.all(Workload)} | own
    managed = {pod.key for job in jobs for pod in job.pods}
    labels = {
        one.name: one.metadata.labels for one in cluster.objects if isinstance(one, Namespace)
    }
    names = dict.fromkeys((*(one.metadata.namespace for one in workloads.values()), *namespaces))
    return KueueObjects(
        cluster_queues=manifests.all(KueueClusterQueue),
        cohorts=manifests.all(Cohort),
        local_queues=manifests.all(LocalQueue),
        resource_flavors=manifests.all(ResourceFlavor),
        topologies=manifests.all(Topology),
        admission_checks=manifests.all(AdmissionCheck),
        workloads=list(workloads.values()),
        namespaces=[
            KueueNamespace(
                metadata=ObjectMeta(
                    name=name,
                    labels={"kubernetes.io/metadata.name": name, **labels.get(name, {})},
                )
            )
            for name in names
        ],
        # In files nodes need not have conditions; a cluster's node without one is not ready.
        nodes=[with_ready_condition(node, "True") for node in cluster.nodes],
        pods=[
            pod
            for pod in cluster.pods
            if pod.key not in managed and WORKLOAD_ANNOTATION not in pod.metadata.annotations
        ],
        now=time_of(cluster).timestamp() + 1,
    )


def run_cycles(admission: KueueAdmission, preempted: dict[str, str]) -> int:
    """Run cycles until nothing changes; their number. preempted: gets victim -> preemptor."""
    most = max(100, CYCLES_PER_WORKLOAD * len(admission.workloads))
    idle = cycles = 0
    while idle < IDLE_MAX and cycles < most:
        before = _waiting(admission)
        outcome = admission.run_cycle()
        if outcome is None:
            break
        cycles += 1
        preempted.update({victim: by for victim, (_, by) in outcome.preempted.items()})
        for key in outcome.admitted:
            preempted.pop(key, None)
        admission.between_cycles()
        is_idle = not outcome.has_effect and _waiting(admission) == before
        idle = idle + 1 if is_idle else 0
    return cycles


def _waiting(admission: KueueAdmission) -> dict[str, tuple[list[str], list[str]]]:
    return {
        name: (sorted(one.active), sorted(one.inadmissible))
        for name, one in admission.pending.items()
    }


def _report(
    job: QueuedJob | None,
    one: AdmissionWorkload,
    admission: KueueAdmission,
    preempted: dict[str, str],
    positions: dict[str, int],
) -> WorkloadReport:
    status = status_of(one)
    reason, message = ("", "") if status == ADMITTED else why_pending(one, admission)
    cause = why_inactive(one, admission) if reason == SUSPENDED else ""
    message = f"{message}: {cause}" if cause else message
    by = preempted.get(one.key, "")
    return WorkloadReport(
        one.namespace,
        job.title if job is not None else _title(one.workload),
        one.workload.spec.queue_name,
        one.cluster_queue,
        one.priority,
        sum(pod_set.count for pod_set in one.pod_sets),
        status,
        reason,
        f"{message} (preempted by workload {by})" if by and message else message,
        {demand.name: demand.flavors for demand in one.demands} if one.holds_quota else {},
        {demand.name: demand.count for demand in one.demands} if one.holds_quota else {},
        by,
        positions.get(one.key, 0),
        shortages_of(one, admission) if status != ADMITTED else [],
        one.workload.name,
        usage=uses_ahead(one, admission),
    )


def _title(workload: Workload) -> str:
    """The job that a workload of the input belongs to."""
    owners = workload.metadata.owner_references
    if is_of_pod_group(owners):
        return f"{POD_GROUP.lower()}/{workload.name}"
    if len(owners) != 1:
        return f"workload/{workload.name}"
    return f"{owners[0].kind.lower()}/{owners[0].name}"


def _decided(
    cluster: Cluster,
    jobs: list[QueuedJob],
    admission: KueueAdmission,
    reports: dict[str, WorkloadReport],
    report: KueueReport,
) -> JobAdmission:
    flavors = {one.name: one for one in admission.objects.resource_flavors}
    changed: dict[str, Pod] = {}
    held: list[Placement] = []
    for job in jobs:
        found = reports.get(job.workload.key)
        if found is None:
            continue
        demands = {one.name: one for one in admission.workloads[job.workload.key].demands}
        for name, pods in job.pod_sets.items():
            n_run = demands[name].count if found.status == ADMITTED and name in demands else 0
            for i, pod in enumerate(pods):
                if i < n_run:
                    changed[pod.key] = _with_flavors(pod, i, demands[name], flavors)
                else:
                    held.append(_held(pod, found))
    not_run = {one.pod for one in held}
    pods = [changed.get(pod.key, pod) for pod in cluster.pods if pod.key not in not_run]
    decided = replace(cluster, pods=pods, notes=cluster.notes + report.lines())
    return JobAdmission(decided, held, report)


def for_kueue(cluster: Cluster) -> Cluster:
    """A cluster as Kueue finds it: without the gangs and queues that stand for jobs with a queue
    where Kueue does not decide, and without the notes about that."""
    queues = {tree["metadata"]["name"] for tree in cluster.kueue_objects}
    jobs = {f"{namespace_of(tree)}/{tree['metadata']['name']}" for tree in cluster.queued}
    objects = [
        one
        for one in cluster.objects
        if not (isinstance(one, Queue) and one.name in queues)
        and not (isinstance(one, PodGroup) and one.key in jobs)
    ]
    notes = [one for one in cluster.notes if not one.startswith(KUEUE_NOTE)]
    ignored = {kind: n for kind, n in cluster.ignored.items() if kind not in KUEUE_KINDS}
    pods = [_without_gang(pod, jobs) for pod in cluster.pods]
    return replace(cluster, pods=pods, objects=objects, notes=notes, ignored=ignored)


def _without_gang(pod: Pod, jobs: Set[str]) -> Pod:
    notes = pod.metadata.annotations
    names = {f"{pod.namespace}/{notes[key]}" for key in GROUP_ANNOTATIONS if key in notes}
    if not names & jobs:
        return pod
    left = {key: value for key, value in notes.items() if key not in GROUP_ANNOTATIONS}
    return replace(pod, metadata=replace(pod.metadata, annotations=left))


def _held(pod: Pod, found: WorkloadReport) -> Placement:
    if found.status == ADMITTED:
        reason = "admitted with fewer pods"
        return Placement(pod.key, "", f"Kueue: {reason}", f"its workload is {reason}")
    return Placement(pod.key, "", f"Kueue: {found.reason}", found.message)


def _with_flavors(
    pod: Pod, index: int, demand: PodSetDemand, flavors: dict[str, ResourceFlavor]
) -> Pod:
    """A pod with the selectors and tolerations of its flavors, the labels of its place, and without
    the gates that kept it until it was admitted."""
    if pod.node_name:
        return pod
    used = [flavors[name] for name in sorted(set(demand.flavors.values())) if name in flavors]
    selector = dict(pod.spec.node_selector or {})
    tolerations = list(pod.spec.tolerations)
    for flavor in used:
        selector |= flavor.spec.node_labels
        tolerations += [one for one in flavor.spec.tolerations if one not in tolerations]
    if demand.places is not None:
        values = _place_of(index, demand.places.domains)
        selector |= dict(zip(demand.places.levels, values, strict=False))
    gates = tuple(one for one in pod.spec.scheduling_gates if one.name not in _GATES)
    spec = replace(
        pod.spec,
        node_selector=selector,
        tolerations=tuple(tolerations),
        scheduling_gates=gates,
    )
    return replace(pod, spec=spec)


def _place_of(index: int, domains: Iterable[tuple[tuple[str, ...], int]]) -> tuple[str, ...]:
    """The domain of the pod with an index."""
    for values, count in domains:
        if index < count:
            return values
        index -= count
    return ()
