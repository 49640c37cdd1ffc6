"""Jobs as text: what a session made of each gang, and why a pod of one waits."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table
from rich.text import Text

from stowplan.forecast.explain_job import JobExplanation
from stowplan.simulation.session_runner import JobReport

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


def print_job_explanation(explanation: JobExplanation, screen: Console) -> None:
    """Print for a terminal; wide tables fold to its width."""
    screen.print(Text(_headline(explanation), style="bold"))
    job = explanation.job
    if job is not None:
        text = f"{_title(job)}: {job.ready} of {job.pods} pods have a node, {job.min_member} needed"
        more = f", {job.phase}" if job.phase else ""
        screen.print(Text(f"{text}; queue {job.queue or '(none)'}, priority {job.priority}{more}"))
        if job.reason:
            screen.print(Text(f"{job.reason}: {job.message}"))
    for why in explanation.never[1 if explanation.pod_group else 0 :]:
        screen.print(Text(f"It can never run here: {why}"))
    for note in explanation.evictions:
        screen.print(Text(note[:1].upper() + note[1:]))
    if explanation.evicted:
        gone = ", ".join(f"{pod} ({why})" for pod, why in explanation.evicted.items())
        screen.print(Text(f"The session evicts {gone} for it"))
    if explanation.evicted_for_others:
        screen.print(Text(f"and {explanation.evicted_for_others} pods for others", style="dim"))
    if explanation.nodes:
        whose = f"{explanation.nodes_of}, " if explanation.pod_group else ""
        text = f"{whose}judged on the cluster as the session leaves it"
        screen.print(Text(text, style="dim"))
        _print_nodes(explanation, screen)


def _group_headline(explanation: JobExplanation) -> str:
    where = f"podgroup {explanation.pod_group} ({explanation.scheduler_name}, by sessions): "
    job = explanation.job
    if job is None:
        return f"{where}pending; {explanation.message}"
    if explanation.never:
        return f"{where}pending; it can never run here: {explanation.never[0]}"
    state = "ready" if job.is_ready else "pending"
    return f"{where}{state}; {job.ready} pods have a node, {job.min_member} are needed"


def _headline(explanation: JobExplanation) -> str:
    if explanation.pod_group:
        return _group_headline(explanation)
    where = f"{explanation.pod} ({explanation.scheduler_name}, by sessions): "
    if explanation.current_node:
        return f"{where}on {explanation.current_node}"
    if explanation.node:
        return f"{where}pending; a session would place it on {explanation.node}"
    if explanation.promised:
        return f"{where}pending; a session keeps room for it on {explanation.promised}"
    if explanation.job is None:
        return f"{where}not looked at; it is another scheduler's"
    if explanation.gates:
        return f"{where}pending; it waits for its scheduling gates: {', '.join(explanation.gates)}"
    if not explanation.nodes:
        return f"{where}pending; {explanation.job.message or 'there is no node'}"
    fits = sum(not node.reasons for node in explanation.nodes)
    return f"{where}pending; {fits} of {len(explanation.nodes)} nodes have room for it alone"


def _title(job: JobReport) -> str:
    return f"{job.kind} {job.name}"


def _print_nodes(explanation: JobExplanation, screen: Console) -> None:
    if len(explanation.nodes) <= NODES_LISTED:
        table = plain_table("\nNodes", "NODE", "REASON")
        for node in explanation.nodes:
            table.add_row(Text(node.name), Text(", ".join(node.reasons) or "would take it"))
    else:
        alike: dict[str, list[str]] = defaultdict(list)
        for node in explanation.nodes:
            alike[", ".join(r.split(" (")[0] for r in node.reasons)].append(node.name)
        table = plain_table("\nNodes, by reason", "NODES", "REASON", "SUCH AS")
        for reason, names in sorted(alike.items(), key=lambda pair: -len(pair[1])):
            table.add_row(
                str(len(names)), Text(reason or "would take it"), Text(", ".join(names[:3]))
            )
    screen.print(table)
