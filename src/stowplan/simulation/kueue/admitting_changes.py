"""What would admit a workload that waits for Kueue: small changes, each tried on a copy."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.batch.queue_models.kueue.reports.quota_reports import (
    CLUSTER_QUEUE,
    QuotaReport,
    amount_text,
)
from stowplan.batch.queue_models.kueue.reports.workload_reports import (
    KueueReport,
    QuotaShortage,
    WorkloadReport,
)
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.what_if.requested_changes import RequestedChange
from stowplan.objects.quantity import amount
from stowplan.simulation.kueue.job_admission import admit_jobs
from stowplan.simulation.kueue.quota_changes import changed_cluster

ENDS_MAX = 8
"""Running jobs whose end is tried, one by one and then together."""
RAISES_MAX = 5
"""How often quota is raised by what is lacking."""
WORKLOADS_MAX = 2000
"""With more workloads nothing is tried: every trial admits all of them anew."""


class AdmittingChange(msgspec.Struct, frozen=True):
    """A change after which a workload is admitted. text: for people. requests: for `what-if`."""

    text: str
    requests: list[RequestedChange]


def admitting_changes(
    cluster: Cluster, options: KueueOptions, report: KueueReport, found: WorkloadReport
) -> list[AdmittingChange]:
    """Changes of quota, of limits and of the order of the queue, and the end of other jobs, that
    admit a workload which is pending; at most one of each. Raises InputError."""
    if found.status != "Pending" or len(report.workloads) > WORKLOADS_MAX:
        return []
    trial = _Trial(cluster, options, found)
    made = [*trial.raised("nominalQuota", report), *trial.raised("borrowingLimit", report)]
    if found.position > 1:
        made += trial.reordered()
    return [*made, *trial.ended(_running(report, found))]


class _Trial:
    def __init__(self, cluster: Cluster, options: KueueOptions, found: WorkloadReport) -> None:
        self._cluster, self._options, self._found = cluster, options, found

    def _after(self, changes: Iterable[RequestedChange]) -> WorkloadReport | None:
        """The workload after changes."""
        report = admit_jobs(changed_cluster(self._cluster, changes), self._options).report
        key = self._found.namespace, self._found.job
        workloads = () if report is None else report.workloads
        return next((one for one in workloads if (one.namespace, one.job) == key), None)

    def _admits(self, changes: Iterable[RequestedChange]) -> bool:
        after = self._after(changes)
        return after is not None and after.status == "Admitted"

    def raised(self, field: str, report: KueueReport) -> Iterator[AdmittingChange]:
        """More quota in a flavor, or a higher limit: what is lacking, and as long as others take it
        what is lacking then."""
        quotas = _quotas_of(report, self._found.cluster_queue)
        for flavor in dict.fromkeys(one.flavor for one in self._found.shortages):
            more: Counter[str] = Counter()
            after: WorkloadReport | None = self._found
            for _ in range(RAISES_MAX):
                if after is None or after.status == "Admitted":
                    break
                short = [one for one in after.shortages if one.flavor == flavor]
                if not short or not all(_has(field, quotas, one) for one in short):
                    break
                for one in short:
                    more[one.resource] += _lacking(one)
                parts = [
                    _raised(field, self._found.cluster_queue, quotas[flavor, name], n)
                    for name, n in more.items()
                ]
                after = self._after(change for _, change in parts)
                if after is not None and after.status == "Admitted":
                    text = ", ".join(text for text, _ in parts)
                    yield AdmittingChange(text, [change for _, change in parts])
                    return

    def reordered(self) -> Iterator[AdmittingChange]:
        """The other strategy, for a workload behind others."""
        queue = self._found.cluster_queue
        change = RequestedChange("queue", f"{queue}.queueingStrategy=BestEffortFIFO")
        if self._admits([change]):
            text = f"queueingStrategy BestEffortFIFO of ClusterQueue {queue}"
            yield AdmittingChange(text, [change])

    def ended(self, jobs: list[str]) -> Iterator[AdmittingChange]:
        """The end of one job, or else of several, none of which could stay."""
        gone = next(([job] for job in jobs if self._admits(_ended([job]))), [])
        if not gone:
            for job in jobs:
                gone = [*gone, job]
                if len(gone) > 1 and self._admits(_ended(gone)):
                    break
            else:
                return
            for job in gone[:-1]:
                fewer = [one for one in gone if one != job]
                gone = fewer if self._admits(_ended(fewer)) else gone
        text = f"the end of {' and '.join(gone)}"
        yield AdmittingChange(text, _ended(gone))


def _ended(jobs: Iterable[str]) -> list[RequestedChange]:
    return [RequestedChange("delete", job) for job in jobs]


def _quotas_of(report: KueueReport, name: str) -> dict[tuple[str, str], QuotaReport]:
    return {
        (one.flavor, one.resource): one
        for queue in report.queues
        if queue.kind == CLUSTER_QUEUE and queue.name == name
        for one in queue.quotas
    }


def _raised(field: str, queue: str, quota: QuotaReport, more: int) -> tuple[str, RequestedChange]:
    name = quota.resource
    before = quota.nominal if field == "nominalQuota" else quota.borrowing_limit
    after = amount_text(name, amount(name, before) + more)
    text = f"{field} {after} of {name} in flavor {quota.flavor} of ClusterQueue {queue}"
    change = f"{queue}.{field}[{quota.flavor}/{name}]={after}"
    return f"{text} (it is {before})", RequestedChange("queue", change)


def _lacking(one: QuotaShortage) -> int:
    return amount(one.resource, one.requested) - amount(one.resource, one.available)


def _has(field: str, quotas: Mapping[tuple[str, str], QuotaReport], short: QuotaShortage) -> bool:
    """True if a queue has quota, or a limit, that can be raised."""
    quota = quotas.get((short.flavor, short.resource))
    return quota is not None and (field == "nominalQuota" or quota.borrowing_limit != "-")


def _running(report: KueueReport, found: WorkloadReport) -> list[str]:
    """Admitted jobs with quota that is short, those of queues that borrow first."""
    pairs = {(one.flavor, one.resource) for one in found.shortages}
    borrowing = {name for one in found.shortages for name in one.borrowers}
    running = [
        one
        for one in report.workloads
        if one.status == "Admitted"
        and not one.job.startswith("workload/")
        and any(
            (flavor, name) in pairs
            for held in one.flavors.values()
            for name, flavor in held.items()
        )
    ]
    running.sort(
        key=lambda one: (one.cluster_queue not in borrowing, one.priority, one.pods, one.job)
    )
    return [one.job for one in running[:ENDS_MAX]]
