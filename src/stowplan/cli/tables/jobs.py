"""Jobs as text: the result of a session for each gang, and why a pod of one is pending."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from rich.console import Console
from rich.text import Text

from stowplan.batch.job_report import JobReport
from stowplan.cli.tables.changes import print_change_table
from stowplan.cli.tables.console import examples, plain_table
from stowplan.cli.tables.queue_reports.wait_table import print_wait
from stowplan.forecast.explain_job import JobExplanation
from stowplan.inputs.counts import count_of

NODES_LISTED = 20
EXAMPLES_LISTED = 3


def print_jobs(jobs: Iterable[JobReport], screen: Console) -> None:
    """A line per job, with the reason where it is not ready."""
    table = plain_table(
        "\nJobs", "NAMESPACE", "NAME", "READY", "MIN-MEMBER", "PODS", "PHASE", "QUEUE", "REASON",
        right=("READY", "MIN-MEMBER", "PODS"),
    )  # fmt: skip
    for job in jobs:
        why = f"{job.reason}: {job.message}" if job.reason else ""
        namespace, _, name = job.name.partition("/")
        figures = map(str, (job.ready, job.min_member, job.pods))
        table.add_row(Text(namespace), Text(name), *figures, job.phase, Text(job.queue), Text(why))
    screen.print(table)


def print_job_explanation(
    explanation: JobExplanation, screen: Console, *, wide: bool = False
) -> None:
    """Print for a terminal; wide tables fold to its width. wide: a line for every node."""
    screen.print(Text(_headline(explanation), style="bold"))
    job = explanation.job
    if job is not None:
        text = f"{job.kind} {job.name}: {_before(job)} of {job.pods} pods have a node, "
        text += f"{job.ready} after the session, " if job.placed else ""
        text += f"minMember {job.min_member}"
        more = f", {job.phase}" if job.phase else ""
        screen.print(Text(f"{text}; queue {job.queue or '(none)'}, priority {job.priority}{more}"))
        if job.reason:
            screen.print(Text(f"{job.reason}: {job.message}"))
    for why in explanation.never[1 if explanation.pod_group else 0 :]:
        screen.print(Text(f"It cannot run in this cluster: {why}"))
    for note in explanation.evictions:
        screen.print(Text(note[:1].upper() + note[1:]))
    if explanation.evicted:
        evicted = ", ".join(f"{pod} ({why})" for pod, why in explanation.evicted.items())
        screen.print(Text(f"The session evicts {evicted} for it"))
    if explanation.evicted_for_others:
        text = (
            f"The session evicts {count_of(explanation.evicted_for_others, 'pod')} for other jobs"
        )
        screen.print(Text(text, style="dim"))
    if explanation.wait is not None:
        print_wait(explanation.wait, screen)
    if explanation.nodes:
        whose = f"{explanation.nodes_of}, " if explanation.pod_group else ""
        text = f"{whose}evaluated on the cluster at the end of the session"
        screen.print(Text(text, style="dim"))
        _print_nodes(explanation, screen, wide=wide)
    title = "\nSmallest changes that let it run"
    if explanation.changes:
        print_change_table(explanation.changes, explanation.not_searched, screen, title)


def _before(job: JobReport) -> int:
    """How many of its pods have a node before the session."""
    return job.ready - len(job.placed)


def _group_headline(explanation: JobExplanation) -> str:
    where = f"podgroup {explanation.pod_group} ({explanation.scheduler_name}, by sessions): "
    job = explanation.job
    if job is None:
        return f"{where}pending; {explanation.message}"
    if explanation.never:
        return f"{where}pending; it cannot run in this cluster: {explanation.never[0]}"
    if job.is_ready and _before(job) < job.min_member:
        placed = count_of(len(job.placed), "pod")
        return f"{where}pending; a session would schedule {placed}, minMember is {job.min_member}"
    state = "ready" if job.is_ready else "pending"
    placed = count_of(_before(job), "pod has", "pods have")
    return f"{where}{state}; {placed} a node, minMember is {job.min_member}"


def _headline(explanation: JobExplanation) -> str:
    if explanation.pod_group:
        return _group_headline(explanation)
    where = f"{explanation.pod} ({explanation.scheduler_name}, by sessions): "
    if explanation.current_node:
        return f"{where}on {explanation.current_node}"
    if explanation.node:
        return f"{where}pending; a session would schedule it on {explanation.node}"
    if explanation.promised:
        return f"{where}pending; a session reserves resources for it on {explanation.promised}"
    if explanation.message:
        return f"{where}ignored by sessions; {explanation.message}"
    if explanation.job is None:
        return f"{where}ignored by sessions; another scheduler decides it"
    if explanation.gates:
        return f"{where}pending; scheduling gates: {', '.join(explanation.gates)}"
    if not explanation.nodes:
        return f"{where}pending; {explanation.job.message or 'the cluster has no nodes'}"
    fits = sum(not node.reasons for node in explanation.nodes)
    return f"{where}pending; {fits} of {len(explanation.nodes)} nodes fit this pod alone"


def _print_nodes(explanation: JobExplanation, screen: Console, *, wide: bool) -> None:
    if wide or len(explanation.nodes) <= NODES_LISTED:
        table = plain_table("\nNodes", "NODE", "REASON")
        for node in explanation.nodes:
            table.add_row(Text(node.name), Text(", ".join(node.reasons) or "fits"))
    else:
        groups: dict[str, list[str]] = defaultdict(list)
        for node in explanation.nodes:
            groups[", ".join(r.split(" (")[0] for r in node.reasons)].append(node.name)
        table = plain_table("\nNodes, by reason", "NODES", "REASON", "EXAMPLES", right=("NODES",))
        for reason, names in sorted(groups.items(), key=lambda pair: -len(pair[1])):
            some_names = examples(names, EXAMPLES_LISTED)
            table.add_row(str(len(names)), Text(reason or "fits"), Text(some_names))
    screen.print(table)
