"""The audit of queues: quotas, limits and runtimes that cannot hold, jobs that can never start, and
who starves while others borrow.

Asked for in KAI-Scheduler's issue 2057. Volcano's queues are audited by what they guarantee and, in
the capacity plugin, by what they deserve.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from stowplan.batch.queue_models.kai.kai_objects import queue_terms
from stowplan.batch.queue_models.kai.kai_options import KaiOptions
from stowplan.batch.queue_models.model_decider import ModelDecider
from stowplan.batch.queue_models.queue_model import ModelReport
from stowplan.forecast.queue_reports.audited_queue import (
    ERROR,
    INFO,
    WARNING,
    Amounts,
    AuditedQueue,
    AuditedTree,
    AuditFinding,
)
from stowplan.forecast.queue_reports.job_rules import job_findings
from stowplan.forecast.queue_reports.kai_queue_rules import amounts_of, kai_findings, limits_of
from stowplan.forecast.queue_reports.promise_rules import PROMISE_RULES
from stowplan.forecast.queue_reports.use_rules import USE_RULES
from stowplan.forecast.queue_shares import Shares, shares_of
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.counts import count_of
from stowplan.objects.kai.kai_kinds import KaiQueueObject
from stowplan.objects.podgroup import Queue
from stowplan.objects.quantity import Quantity, milli_value, value
from stowplan.simulation.session_runner import SessionRunner

SCHEMA = "stowplan.dev/queue-audit/v1"
_RANKS = {ERROR: 0, WARNING: 1, INFO: 2}


class QueueAudit(msgspec.Struct, frozen=True, rename="camel"):
    """Findings, the most severe ones first. total: what the queues divide, in cores, bytes and
    units."""

    api_version: str
    scheduler_name: str
    queues: int
    total: dict[str, float]
    findings: list[AuditFinding]

    @property
    def has_errors(self) -> bool:
        """Something can never be met."""
        return any(one.severity == ERROR for one in self.findings)

    def __repr__(self) -> str:
        return f"QueueAudit({count_of(self.queues, 'queue')}, {len(self.findings)} findings)"


def audit_queues(cluster: Cluster, runner: SessionRunner) -> QueueAudit:
    """Audit the queues of a cluster by the configuration of a runner, without deciding.

    Raises as `SessionRunner.run_session`.
    """
    if runner.is_queue_model:
        reports: list[ModelReport] = []
        runner.on_report = lambda _, report: reports.append(report)
        runner.disable_actions()
        runner.run_session()
        # Without pods and nodes no session is due.
        report = reports[0] if reports else ModelReport()
        tree, more = _model_tree(cluster, runner, report)
        found = [*_by_rules(tree), *more, *job_findings(tree, report.jobs, cluster)]
    else:
        shares = shares_of(runner)
        tree = AuditedTree([*_plain_queues(shares)], shares.total)
        found = [*_by_rules(tree), *_missing_objects(shares)]
    return audit_of(runner.batch.scheduler_name, len(tree.queues), tree.total, found)


def audit_of(
    scheduler: str, n_queues: int, total: Amounts, findings: Iterable[AuditFinding]
) -> QueueAudit:
    """An audit with these findings."""
    found = sorted(findings, key=lambda one: (_RANKS[one.severity], one.kind, one.name))
    return QueueAudit(SCHEMA, scheduler, n_queues, dict(total), found)


def _by_rules(tree: AuditedTree) -> Iterator[AuditFinding]:
    for rule in (*PROMISE_RULES, *USE_RULES):
        yield from rule(tree)


def _model_tree(
    cluster: Cluster, runner: SessionRunner, report: ModelReport
) -> tuple[AuditedTree, list[AuditFinding]]:
    """Queues of a model with the findings that are particular to it."""
    decider = runner.decider
    assert isinstance(decider, ModelDecider), "no queue model decides"
    options = decider.plan.settings
    if isinstance(options, KaiOptions):
        objects = [one for one in cluster.objects if isinstance(one, KaiQueueObject)]
        tree = AuditedTree(_kai_queues(objects, report), report.total)
        return tree, [*kai_findings(tree, objects, options)]
    specs = {one.name: one for one in cluster.objects if isinstance(one, Queue)}
    return AuditedTree(_volcano_queues(specs, report), report.total), []


def _kai_queues(objects: Sequence[KaiQueueObject], report: ModelReport) -> Iterator[AuditedQueue]:
    """Also those that sessions leave out, as their parent does not exist."""
    known = {one.name: one for one in report.queues}
    for queue in objects:
        terms, used = queue_terms(queue), known.get(queue.name)
        yield AuditedQueue(
            name=queue.name,
            parent=terms.parent,
            promises={"quota": amounts_of(terms.quota)},
            main="quota",
            limit=limits_of(terms.limit),
            allocated={} if used is None else used.allocated,
            pending={} if used is None else used.pending,
            fixed={} if used is None else used.fixed,
            children=tuple(one.name for one in objects if one.spec.parent_queue == queue.name),
        )


def _volcano_queues(specs: Mapping[str, Queue], report: ModelReport) -> Iterator[AuditedQueue]:
    deserves = any(one.spec.deserved for one in specs.values())
    for queue in report.queues:
        spec = specs.get(queue.name, Queue()).spec
        promises = {"guarantee": _plain(spec.guarantee.resource)}
        if deserves:
            promises["deserved"] = _plain(spec.deserved)
        yield AuditedQueue(
            name=queue.name,
            parent=queue.parent,
            promises={what: amounts for what, amounts in promises.items() if amounts},
            main="deserved" if spec.deserved else "",
            limit=_plain(spec.capability),
            allocated=queue.allocated,
            pending=queue.pending,
            children=tuple(one.name for one in report.queues if one.parent == queue.name),
        )


def _plain(quantities: Mapping[str, Quantity]) -> Amounts:
    return {
        name: milli_value(amount) / 1000 if name == "cpu" else float(value(amount))
        for name, amount in quantities.items()
    }


def _plain_queues(shares: Shares) -> Iterator[AuditedQueue]:
    for queue in shares.queues:
        yield AuditedQueue(
            name=queue.name,
            limit=queue.capability,
            allocated=queue.allocated,
            pending=queue.pending,
        )


def _missing_objects(shares: Shares) -> Iterator[AuditFinding]:
    for kind, reason, missing in (
        ("queue", "QueueNotFound", shares.strays),
        ("podgroup", "PodGroupNotFound", shares.ungrouped),
    ):
        for name, n_pods in missing.items():
            text = f"not found, and {count_of(n_pods, 'pod names', 'pods name')} it"
            yield AuditFinding(ERROR, kind, name, reason, text)
