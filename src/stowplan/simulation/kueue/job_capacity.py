"""How many more of a job Kueue would admit, and which quota the next one lacks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from msgspec.structs import replace

from stowplan.batch.queue_models.kueue.admission_workload import ADMITTED, AdmissionWorkload
from stowplan.batch.queue_models.kueue.flavor_assignment import WAITING_FOR_QUOTA
from stowplan.batch.queue_models.kueue.kueue_objects import KueueWorkloadStatus, Workload
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.batch.queue_models.kueue.reports.workload_reports import (
    QuotaShortage,
    shortages_of,
    status_of,
    why_pending,
)
from stowplan.controllers.kueue.kueue_kinds import API_VERSION
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.input_error import InputError
from stowplan.objects.encoding.tree import Tree
from stowplan.simulation.kueue.admitting_changes import admitting_changes
from stowplan.simulation.kueue.job_admission import (
    admission_of,
    admit_jobs,
    check_admission,
    for_kueue,
    run_cycles,
)
from stowplan.simulation.kueue.kueue_manifests import KueueManifests
from stowplan.simulation.kueue.queued_jobs import QueuedJob, queued_jobs

SCHEMA = "stowplan.dev/kueue-capacity/v1"
LIMIT = 1000
"""Copies of a job up to which is counted."""
QUOTA_ONLY = "quota is counted, not room on nodes: that is counted without Kueue's configuration"


class JobCapacity(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many more of a job are admitted, one after another.

    is_limited: counting ended at the limit. flavors: flavor -> copies that use it. preempted: jobs
    that lose their quota to the copies. reason, message: why the next one is not admitted.
    position: of it in its queue, 0 where it waits in none. shortages: quota that it lacks.
    admitted_by: changes that would admit it.
    """

    namespace: str
    job: str
    local_queue: str
    cluster_queue: str
    pods: int
    count: int
    is_limited: bool = False
    flavors: dict[str, int] = {}
    preempted: list[str] = []
    reason: str = ""
    message: str = ""
    position: int = 0
    shortages: list[QuotaShortage] = []
    admitted_by: list[str] = []


class KueueCapacity(msgspec.Struct, frozen=True, kw_only=True):
    """The answer, for each job alone. notes: what limits it."""

    schema: str = SCHEMA
    jobs: list[JobCapacity]
    notes: tuple[str, ...] = (QUOTA_ONLY,)


def job_capacity(
    wanted: Cluster, cluster: Cluster, options: KueueOptions, limit: int = LIMIT
) -> KueueCapacity:
    """Count how many more of each job of `wanted` are admitted, beside what the cluster has.

    wanted: jobs with a queue. The jobs that wait already come first; a copy counts if it is
    admitted and holds its quota when nothing changes any more. Raises InputError.
    """
    check_admission(cluster)
    jobs = _asked(wanted, cluster)
    if not jobs:
        text = "jobs or pods with the label kueue.x-k8s.io/queue-name"
        raise InputError("workload", "", "no jobs with a queue of Kueue", text)
    return KueueCapacity(jobs=[_CopyCounter(cluster, options, job).count(limit) for job in jobs])


def _asked(wanted: Cluster, cluster: Cluster) -> list[QueuedJob]:
    """The jobs to count, with the priority classes of both."""
    both = for_kueue(msgspec.structs.replace(wanted, objects=[*cluster.objects, *wanted.objects]))
    # A job of the same name may have a Workload, which has quota already.
    there = (one for one in cluster.kueue_objects if one["kind"] != "Workload")
    manifests = KueueManifests([*there, *wanted.kueue_objects])
    return queued_jobs(both, manifests)


class _CopyCounter:
    """Counts copies of one job on a state of its own."""

    def __init__(self, cluster: Cluster, options: KueueOptions, job: QueuedJob) -> None:
        admission, jobs = admission_of(cluster, options, namespaces=[job.owner[1]])
        self._titles = {one.workload.key: one.title for one in jobs}
        self._admission, self._job = admission, job
        self._cluster, self._options = cluster, options
        run_cycles(admission, {})

    def count(self, limit: int) -> JobCapacity:
        """Add copies until one is not admitted."""
        admission, made = self._admission, list[AdmissionWorkload]()
        before = {key for key, one in admission.workloads.items() if one.holds_quota}
        refused: AdmissionWorkload | None = None
        while len(made) < limit:
            copy = _copy_of(self._job.workload, len(made), admission.now)
            admission.add([copy])
            run_cycles(admission, {})
            added = admission.workloads[copy.key]
            if not _are_admitted([*made, added]):
                refused = added
                break
            made.append(added)
        # A copy that takes the place of another one does not count.
        lost = sorted(key for key in before if not admission.workloads[key].holds_quota)
        return self._answer(made, refused, lost, limit)

    def _answer(
        self,
        made: Sequence[AdmissionWorkload],
        refused: AdmissionWorkload | None,
        lost: Iterable[str],
        limit: int,
    ) -> JobCapacity:
        admission, workload = self._admission, self._job.workload
        used = Counter(
            flavor
            for one in made
            for flavor in {name for demand in one.demands for name in demand.flavors.values()}
        )
        last = refused or (made[-1] if made else None)
        found = JobCapacity(
            namespace=workload.metadata.namespace,
            job=self._job.title,
            local_queue=workload.spec.queue_name,
            cluster_queue="" if last is None else last.cluster_queue,
            pods=sum(one.count for one in workload.spec.pod_sets),
            count=len(made),
            is_limited=refused is None and len(made) == limit,
            flavors=dict(sorted(used.items())),
            preempted=[self._titles.get(key, f"workload/{key.partition('/')[2]}") for key in lost],
        )
        if refused is None:
            return found
        reason, message = why_pending(refused, admission)
        if reason == "Pending" and shortages_of(refused, admission):
            # It was not tried: one that asks for the same has failed.
            reason = WAITING_FOR_QUOTA
        waiting = admission.pending.get(refused.cluster_queue)
        order = [] if waiting is None else waiting.in_order()
        position = order.index(refused.key) + 1 if refused.key in order else 0
        return replace(
            found,
            reason=reason,
            message=message,
            position=position,
            shortages=shortages_of(refused, admission),
            admitted_by=self._admitted_by([*(one.workload for one in made), refused.workload]),
        )

    def _admitted_by(self, copies: Sequence[Workload]) -> list[str]:
        """Changes that would admit the last copy, too."""
        trees = [_tree_of(one) for one in copies]
        cluster = replace(self._cluster, kueue_objects=[*self._cluster.kueue_objects, *trees])
        report = admit_jobs(cluster, self._options).report
        assert report is not None, "admitting reports"
        last = f"workload/{copies[-1].name}"
        for one in report.workloads:
            if (one.namespace, one.job) == (copies[-1].metadata.namespace, last):
                made = admitting_changes(cluster, self._options, report, one)
                return [change.text for change in made]
        return []


def _are_admitted(copies: Iterable[AdmissionWorkload]) -> bool:
    return all(status_of(one) == ADMITTED and not one.is_evicted for one in copies)


def _tree_of(workload: Workload) -> Tree:
    """A Workload as a manifest."""
    tree: Tree = msgspec.json.decode(msgspec.json.encode(workload))
    return {"apiVersion": API_VERSION, "kind": "Workload", **tree}


def _copy_of(workload: Workload, number: int, now: float) -> Workload:
    """The workload under another name, created now."""
    created = datetime.fromtimestamp(now, UTC) + timedelta(microseconds=number)
    meta = replace(
        workload.metadata,
        name=f"{workload.name}-more-{number + 1}",
        uid=f"~{number:08d}",
        creation_timestamp=created,
    )
    return replace(workload, metadata=meta, status=KueueWorkloadStatus())
