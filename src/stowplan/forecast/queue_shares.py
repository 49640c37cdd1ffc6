"""Queue shares: what each queue deserves, has and requests, and whose resources it borrows.

The part of a queue is its weighted share of all resources, of the part of the queue above it if
there is one. `queue_loans` has what is borrowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from stowplan.batch import Session
from stowplan.batch.missing_objects import POD_GROUP_NOT_FOUND
from stowplan.batch.queue_models.queue_model import ModelReport
from stowplan.batch.session_plugins.proportion import ProportionPlugin, QueueShare
from stowplan.batch.state.capability import PODS, limits_of
from stowplan.forecast.queue_loans import (
    Loan,
    PartAndUse,
    loans_between,
    parts_by_weight,
    queue_model_loans,
)
from stowplan.framework.deciders.resource_vector import ResourceVector
from stowplan.framework.deciders.tasks import OCCUPYING, TaskStatus
from stowplan.inputs.counts import count_of
from stowplan.kube_batch_v05.proportion import KubeBatchProportion, KubeBatchQueueShare
from stowplan.kube_batch_v05.session import KubeBatchSession
from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.encoding.html_summary import html_summary, html_table
from stowplan.simulation.session_runner import AnyJob, AnySession, SessionRunner, tasks

SCHEMA = "stowplan.dev/queues/v1"
LOAN_MIN = 0.5
"""Smaller loans (milli-CPU, bytes, thousandths) are rounding errors of parts."""


class QueueShares(msgspec.Struct, frozen=True, rename="camel"):
    """Amounts of a queue. share: maximum over resources of allocated / deserved.

    deserved, allocated, pending: resource -> amount in cores, bytes or units. deserved and share
    are absent without the proportion plugin. capability: the queue's limits. guarantee: what it
    has in any case, KAI-Scheduler's quota. parent: the queue above it. Both only of queue models.
    """

    name: str
    weight: int
    pods_placed: int
    pods_pending: int
    part: dict[str, float]
    deserved: dict[str, float] | None
    allocated: dict[str, float]
    pending: dict[str, float]
    share: float | None
    capability: dict[str, float] = {}
    guarantee: dict[str, float] = {}
    parent: str = ""


class Shares(msgspec.Struct, frozen=True, rename="camel"):
    """All queues and loans. strays: queue that is none of these -> number of pods that name it.

    ungrouped: missing PodGroup -> number of pods that name it. left_out: those of `strays` that
    exist -> why they start no jobs.
    """

    api_version: str
    scheduler_name: str
    total: dict[str, float]
    queues: list[QueueShares]
    loans: list[Loan]
    strays: dict[str, int]
    ungrouped: dict[str, int] = {}
    left_out: dict[str, str] = {}

    def __repr__(self) -> str:
        pending = sum(one.pods_pending for one in self.queues)
        queues, loans = count_of(len(self.queues), "queue"), count_of(len(self.loans), "loan")
        return f"Shares({queues}, {count_of(pending, 'pending pod')}, {loans})"

    def _repr_html_(self) -> str:
        """For notebooks: the queues with their shares, and who uses what of whom."""
        queues = (
            (
                one.name, one.weight, one.pods_placed, one.pods_pending,
                "" if one.share is None else f"{one.share:.1%}",
            )
            for one in self.queues
        )  # fmt: skip
        loans = ((one.borrower, one.lender, one.resource, f"{one.amount:g}") for one in self.loans)
        return html_summary(
            repr(self),
            html_table(("Queue", "Weight", "Placed", "Pending", "Of deserved"), queues),
            html_table(("Borrower", "Lender", "Resource", "Amount"), loans),
        )

    def to_frame(self, library: str = "") -> Any:
        """The queues as a DataFrame, one row each, with a column per kind of amount and resource,
        such as `allocated.cpu`; None where a queue has none."""
        plain = ("name", "weight", "pods_placed", "pods_pending", "share")
        columns: dict[str, list[Any]] = {n: [getattr(q, n) for q in self.queues] for n in plain}
        for kind in ("deserved", "allocated", "pending", "capability"):
            amounts = [getattr(one, kind) or {} for one in self.queues]
            for resource in sorted({name for one in amounts for name in one}):
                columns[f"{kind}.{resource}"] = [one.get(resource) for one in amounts]
        return to_dataframe(columns, library)


class _QueueTotals:
    """Allocated and pending amounts of a queue."""

    def __init__(self) -> None:
        self.allocated = ResourceVector()
        self.pending = ResourceVector()
        self.n_placed = 0
        self.n_pending = 0


def shares_of(runner: SessionRunner) -> Shares:
    """The shares of queues in a session; raises as `SessionRunner.run_session`."""
    found: list[Shares] = []
    if runner.is_queue_model:
        runner.on_report = lambda _, report: found.append(_model_shares(runner, report))
    runner.on_run = lambda session: found.append(_shares(runner, session))
    runner.disable_actions()
    runner.run_session()
    return found[0]


def _model_shares(runner: SessionRunner, report: ModelReport) -> Shares:
    """The same of a queue model; a queue's part is what it deserves, by weight where the model does
    not say."""
    part_of = parts_by_weight(report.queues)
    used = {name for one in report.queues for name in (*one.allocated, *one.pending)}
    names = [name for name in report.total if name in ("cpu", "memory") or name in used]
    queues = []
    for one in report.queues:
        by_weight = {n: report.total[n] * part_of[one.name] for n in names}
        deserved = one.deserved
        queues.append(
            QueueShares(
                name=one.name,
                weight=one.weight,
                pods_placed=one.pods_placed,
                pods_pending=one.pods_pending,
                part={n: round(amount, 3) for n, amount in by_weight.items()},
                deserved=None if deserved is None else {n: deserved.get(n, 0.0) for n in names},
                allocated={n: one.allocated.get(n, 0.0) for n in names},
                pending={n: one.pending.get(n, 0.0) for n in names},
                share=one.share,
                capability=one.capability,
                guarantee=one.guarantee,
                parent=one.parent,
            )
        )
    strays: dict[str, int] = {}
    ungrouped: dict[str, int] = {}
    known = {one.name for one in report.queues}
    for job in report.jobs:
        if job.reason == POD_GROUP_NOT_FOUND:
            ungrouped[job.uid] = job.pods
        elif job.queue not in known:
            strays[job.queue] = strays.get(job.queue, 0) + job.pods
    name, total = runner.batch.scheduler_name, {n: report.total[n] for n in names}
    loans = list(queue_model_loans(report, total))
    left_out = {n: text for n, text in report.left_out.items() if n in strays}
    return Shares(SCHEMA, name, total, queues, loans, strays, ungrouped, left_out)


def _shares(runner: SessionRunner, session: AnySession) -> Shares:
    counts = _counted(session)
    total = _total(session)
    parts = _parts(session, total)
    proportion = session.plugins.get(ProportionPlugin.name)
    shared: Mapping[str, QueueShare | KubeBatchQueueShare] | None = (
        proportion.shares
        if isinstance(proportion, ProportionPlugin | KubeBatchProportion)
        else None
    )
    names = _resources(total, counts)
    queues = []
    for name in sorted(session.queues):
        held = shared.get(name) if shared is not None else None
        deserved = None if shared is None else ResourceVector() if held is None else held.deserved
        count = counts.get(name) or _QueueTotals()
        queues.append(
            QueueShares(
                name=name,
                weight=session.queues[name].weight,
                pods_placed=count.n_placed,
                pods_pending=count.n_pending,
                part=_plain(parts[name], names),
                deserved=None if deserved is None else _plain(deserved, names),
                allocated=_plain(count.allocated, names),
                pending=_plain(count.pending, names),
                share=None if shared is None else held.share if held is not None else 0.0,
                capability=_capability(session, name),
            )
        )
    strays: dict[str, int] = {}
    ungrouped: dict[str, int] = {}
    for job in runner.known_jobs:
        if job.group is None and not job.has_budget and job.tasks:
            ungrouped[job.uid] = len(job.tasks)
        elif job.queue not in session.queues and job.tasks:
            strays[job.queue] = strays.get(job.queue, 0) + len(job.tasks)
    loans = list(_loans(parts, counts, _idle(session, names)))
    whole = _plain(total, names)
    return Shares(SCHEMA, runner.batch.scheduler_name, whole, queues, loans, strays, ungrouped)


def _total(session: AnySession) -> ResourceVector:
    """Allocatable resources of all ready nodes."""
    if isinstance(session, Session):
        return session.state.nodes.total()
    total = ResourceVector()
    for node in session.nodes.values():
        total.add(node.allocatable)
    return total


def _idle(session: AnySession, names: list[str]) -> dict[str, float]:
    """Resource -> idle amount on ready nodes."""
    if isinstance(session, KubeBatchSession):
        held = session.nodes.values()
        return {name: sum(node.idle.get(name) for node in held) for name in names}
    nodes = session.state.nodes
    there = nodes.has_ready_nodes()
    return {name: float(nodes.idle.get(name, nodes.n_nodes)[there].sum()) for name in names}


def _counted(session: AnySession) -> dict[str, _QueueTotals]:
    counts: dict[str, _QueueTotals] = {}
    jobs: list[AnyJob] = [*session.jobs.values()]
    if isinstance(session, Session):
        jobs += session.invalid.values()
    for job in jobs:
        count = counts.setdefault(job.queue, _QueueTotals())
        count.allocated.add(job.allocated)
        count.n_placed += job.count(OCCUPYING)
        for task in tasks(job, TaskStatus.PENDING):
            count.pending.add(task.ask.running)
            count.n_pending += 1
    return counts


def _parts(session: AnySession, total: ResourceVector) -> dict[str, ResourceVector]:
    """Weighted part of each queue."""
    weights = {name: max(queue.weight, 0) for name, queue in session.queues.items()}
    whole = sum(weights.values())
    return {
        name: total.copy().times(weight / whole) if whole else ResourceVector()
        for name, weight in weights.items()
    }


def _resources(total: ResourceVector, counts: dict[str, _QueueTotals]) -> list[str]:
    """cpu, memory, and other resources in use or requested."""
    more = {
        name
        for count in counts.values()
        for amount in (count.allocated, count.pending)
        for name, n in amount.pairs()
        if n > 0
    }
    return ["cpu", "memory", *sorted(more - {"cpu", "memory"})]


def _loans(
    parts: dict[str, ResourceVector], counts: dict[str, _QueueTotals], idle: dict[str, float]
) -> Iterator[Loan]:
    """Loans between queues. idle: resource -> idle amount."""
    nothing = _QueueTotals()
    for resource, free in idle.items():
        uses = {}
        for queue, part in parts.items():
            count = counts.get(queue, nothing)
            uses[queue] = PartAndUse(
                part.get(resource), count.allocated.get(resource), count.pending.get(resource)
            )
        for one in loans_between(uses, resource, free, LOAN_MIN):
            amount, back = _unit(resource, one.amount), _unit(resource, one.wanted_back)
            yield replace(one, amount=amount, wanted_back=back)


def _capability(session: AnySession, queue: str) -> dict[str, float]:
    """Resource -> capability of a queue; pods as a number."""
    if isinstance(session, KubeBatchSession):
        return {}
    limits = limits_of(session.queues[queue])
    return {name: n if name == PODS else _unit(name, n) for name, n in limits.items()}


def _plain(amount: ResourceVector, names: list[str]) -> dict[str, float]:
    return {name: _unit(name, amount.get(name)) for name in names}


def _unit(name: str, amount: float) -> float:
    """In cores, bytes or units; sessions count thousandths of everything except memory."""
    return round(amount) if name == "memory" else round(amount / 1000, 3)
