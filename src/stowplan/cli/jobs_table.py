"""Jobs as text: what a session made of each gang, and why a pod of one waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stowplan.sim.explain_job import JobExplanation
from stowplan.sim.rounds import JobReport

NODES_LISTED = 20


def plain_table(title: str, *columns: str) -> Table:
    """A table without lines."""
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def print_jobs(jobs: Iterable[JobReport], screen: Console) -> None:
    """A line per job, those that are not ready with the reason below."""
    table = plain_table("\nJobs", "JOB", "QUEUE", "READY", "NEEDS", "PODS", "PHASE", "WHY NOT")
    for job in jobs:
        why = f"{job.reason}: {job.message}" if job.reason else ""
        table.add_row(
            Text(job.name),
            Text(job.queue),
            *map(str, (job.ready, job.min_member, job.pods)),
            job.phase,
            Text(why),
        )
    screen.print(table)


def print_job_explanation(told: JobExplanation, screen: Console) -> None:
    """Print for a terminal; wide tables fold to its width."""
    screen.print(Text(_headline(told), style="bold"))
    job = told.job
    if job is not None:
        text = f"{_title(job)}: {job.ready} of {job.pods} pods have a node, {job.min_member} needed"
        more = f", {job.phase}" if job.phase else ""
        screen.print(Text(f"{text}; queue {job.queue or '(none)'}, priority {job.priority}{more}"))
        if job.reason:
            screen.print(Text(f"{job.reason}: {job.message}"))
    for why in told.never[1 if told.pod_group else 0 :]:
        screen.print(Text(f"It can never run here: {why}"))
    for note in told.evictions:
        screen.print(Text(note[:1].upper() + note[1:]))
    if told.evicted:
        gone = ", ".join(f"{pod} ({why})" for pod, why in told.evicted.items())
        screen.print(Text(f"The session evicts {gone} for it"))
    if told.evicted_for_others:
        screen.print(Text(f"and {told.evicted_for_others} pods for others", style="dim"))
    if told.nodes:
        whose = f"{told.nodes_of}, " if told.pod_group else ""
        text = f"{whose}judged on the cluster as the session leaves it"
        screen.print(Text(text, style="dim"))
        _print_nodes(told, screen)


def _group_headline(told: JobExplanation) -> str:
    where = f"podgroup {told.pod_group} ({told.scheduler_name}, by sessions): "
    job = told.job
    if job is None:
        return f"{where}pending; {told.message}"
    if told.never:
        return f"{where}pending; it can never run here: {told.never[0]}"
    state = "ready" if job.is_ready else "pending"
    return f"{where}{state}; {job.ready} pods have a node, {job.min_member} are needed"


def _headline(told: JobExplanation) -> str:
    if told.pod_group:
        return _group_headline(told)
    where = f"{told.pod} ({told.scheduler_name}, by sessions): "
    if told.current_node:
        return f"{where}on {told.current_node}"
    if told.node:
        return f"{where}pending; a session would place it on {told.node}"
    if told.promised:
        return f"{where}pending; a session keeps room for it on {told.promised}"
    if told.job is None:
        return f"{where}not looked at; it is another scheduler's"
    if told.gates:
        return f"{where}pending; it waits for its scheduling gates: {', '.join(told.gates)}"
    if not told.nodes:
        return f"{where}pending; {told.job.message or 'there is no node'}"
    fits = sum(not node.reasons for node in told.nodes)
    return f"{where}pending; {fits} of {len(told.nodes)} nodes have room for it alone"


def _title(job: JobReport) -> str:
    return f"{job.kind} {job.name}"


def _print_nodes(told: JobExplanation, screen: Console) -> None:
    if len(told.nodes) <= NODES_LISTED:
        table = plain_table("\nNodes", "NODE", "REASON")
        for node in told.nodes:
            table.add_row(Text(node.name), Text(", ".join(node.reasons) or "would take it"))
    else:
        alike: dict[str, list[str]] = defaultdict(list)
        for node in told.nodes:
            alike[", ".join(r.split(" (")[0] for r in node.reasons)].append(node.name)
        table = plain_table("\nNodes, by reason", "NODES", "REASON", "SUCH AS")
        for reason, names in sorted(alike.items(), key=lambda pair: -len(pair[1])):
            table.add_row(
                str(len(names)), Text(reason or "would take it"), Text(", ".join(names[:3]))
            )
    screen.print(table)
