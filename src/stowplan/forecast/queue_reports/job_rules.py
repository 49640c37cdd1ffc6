"""Jobs that can never start as things are: by the nodes, by limits and quotas of their queues, or
for objects that do not exist.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from stowplan.batch.job_report import JobReport
from stowplan.batch.missing_objects import POD_GROUP_NOT_FOUND
from stowplan.batch.queue_models.kai.model.kai_reasons import NOT_ENOUGH_PODS, QUEUE_NOT_LEAF
from stowplan.batch.state.task_requests import task_request_of
from stowplan.forecast.queue_reports.audited_queue import (
    AMOUNT_MIN,
    ERROR,
    WARNING,
    AuditedTree,
    AuditFinding,
    amount_text,
    promised,
)
from stowplan.forecast.unstartable_jobs import unstartable_reasons_of_report
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.objects.pod import Pod

LISTED_MAX = 3
"""Jobs of a missing queue that are named."""


def job_findings(
    tree: AuditedTree, jobs: Sequence[JobReport], cluster: Cluster
) -> Iterator[AuditFinding]:
    """All of these."""
    pods = {pod.key: pod for pod in cluster.pods}
    yield from _missing_queues(tree, jobs)
    for job in jobs:
        kind = "podgroup" if job.kind == "PodGroup" else "job"
        if job.reason == POD_GROUP_NOT_FOUND:
            text = f"not found, and {count_of(job.pods, 'pod names', 'pods name')} it"
            yield AuditFinding(ERROR, "podgroup", job.name, job.reason, text)
        elif job.reason == QUEUE_NOT_LEAF:
            yield AuditFinding(ERROR, kind, job.name, job.reason, job.message, others=(job.queue,))
        elif job.reason == NOT_ENOUGH_PODS:
            yield AuditFinding(WARNING, kind, job.name, job.reason, job.message)
        elif job.queue in tree.queues and not job.is_ready and job.waiting:
            yield from _never(tree, kind, job, cluster, pods)


def _missing_queues(tree: AuditedTree, jobs: Sequence[JobReport]) -> Iterator[AuditFinding]:
    by_queue: dict[str, list[JobReport]] = {}
    for job in jobs:
        if job.reason != POD_GROUP_NOT_FOUND and job.queue not in tree.queues:
            by_queue.setdefault(job.queue, []).append(job)
    for name, own in sorted(by_queue.items()):
        names = ", ".join(job.name for job in own[:LISTED_MAX])
        more = f" and {len(own) - LISTED_MAX} more" if len(own) > LISTED_MAX else ""
        n_pods = count_of(sum(job.pods for job in own), "pod names it", "pods name it")
        text = f"not found, and {n_pods}: {names}{more}"
        yield AuditFinding(ERROR, "queue", name, "QueueNotFound", text)


def _never(
    tree: AuditedTree, kind: str, job: JobReport, cluster: Cluster, pods: Mapping[str, Pod]
) -> Iterator[AuditFinding]:
    for why in unstartable_reasons_of_report(job, pods, cluster.nodes):
        yield AuditFinding(ERROR, kind, job.name, "NeverFits", why)
    own = tree.queues[job.queue]
    for queue in (own, *tree.above(job.queue)):
        for resource, amount in needed(job, pods).items():
            limit = queue.limit.get(resource)
            if limit is not None and amount > limit + AMOUNT_MIN:
                text = _needs(resource, amount, "limit", queue.name, limit)
                yield AuditFinding(
                    ERROR, kind, job.name, "NeedsOverLimit", text, resource, (queue.name,)
                )
            elif not job.is_preemptible and queue.main:
                quota = promised(queue, queue.main, resource)
                if amount > quota + AMOUNT_MIN:
                    text = _needs(resource, amount, queue.main, queue.name, quota)
                    yield AuditFinding(
                        ERROR, kind, job.name, "NeedsOverQuota", f"may not be preempted, {text}",
                        resource, (queue.name,),
                    )  # fmt: skip


def _needs(resource: str, amount: float, what: str, queue: str, bound: float) -> str:
    has = f"the {what} of queue {queue} is {amount_text(resource, bound)}"
    return f"needs {amount_text(resource, amount)} {resource} to start, {has}"


def needed(job: JobReport, pods: Mapping[str, Pod]) -> Mapping[str, float]:
    """What a job needs in all to start, in cores, bytes and units: what it has, and the smallest
    pods that it lacks."""
    if job.wanted:
        names = dict.fromkeys((*job.uses, *job.wanted))
        return {name: job.uses.get(name, 0.0) + job.wanted.get(name, 0.0) for name in names}
    n_missing = job.min_member - job.ready
    asks = [task_request_of(pods[key]).running for key in job.waiting if key in pods]
    found: dict[str, float] = {}
    for name in dict.fromkeys(name for one in asks for name, _ in one.pairs()):
        amounts = sorted(one.get(name) for one in asks)[:n_missing]
        found[name] = sum(amounts) / (1.0 if name == "memory" else 1000.0)
    return found
