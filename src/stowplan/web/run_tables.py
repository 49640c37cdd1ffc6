"""Tables and key figures of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stowplan.web.charts import Axis, BarChart, Bars, Chart, Column, Fact, ReportTable
from stowplan.web.number_texts import text_of, time_text
from stowplan.web.report_data import RunResults
from stowplan.web.run_charts import label_of

Floats = NDArray[np.float64]

REASONS_MAX = 200
GROUPS_CHARTED = 12


def key_figures(run: RunResults) -> list[Fact]:
    """What a reader wants first: what was placed, how long pods waited, how full nodes were."""
    summary = run.summary
    pods, placed = summary.get("pods", 0), summary.get("placed", 0)
    share = text_of(100 * placed / pods, "percent") if pods else ""
    facts = [
        Fact("Pods placed", f"{placed:,}", f"of {pods:,}" + (f", {share}" if share else "")),
        Fact("Nodes", f"{summary.get('nodes', 0):,}"),
    ]
    waits = summary.get("waits_s") or {}
    if waits:
        facts.append(
            Fact("Mean wait", time_text(waits["mean"]), f"median {time_text(waits['p50'])}")
        )
        facts.append(
            Fact(
                "99th percentile of waits",
                time_text(waits["p99"]),
                f"longest {time_text(waits['max'])}",
            )
        )
    over_time = summary.get("over_time", {}).get("utilisation", {})
    for name in _first_resources(run):
        if name in over_time:
            mean, peak = (
                text_of(over_time[name][part] * 100, "percent") for part in ("mean", "peak")
            )
            facts.append(
                Fact(
                    f"{label_of(name)}, mean",
                    mean,
                    f"of allocatable, peak {peak}",
                )
            )
        elif name in summary.get("utilisation", {}):
            use = summary["utilisation"][name]
            facts.append(
                Fact(
                    f"{label_of(name)}, at the end",
                    text_of(use["share"] * 100, "percent"),
                    "requested of allocatable",
                )
            )
    if len(run.series.get("queue", ())):
        facts.append(Fact("Longest queue", f"{run.series['queue'].max():,.0f}", "pods"))
    if summary.get("preemption", {}).get("victims"):
        facts.append(Fact("Evicted pods", f"{summary['preemption']['victims']:,}"))
    if summary.get("makespan_s"):
        facts.append(Fact("Makespan", time_text(summary["makespan_s"])))
    return facts


def _first_resources(run: RunResults) -> list[str]:
    if run.use is not None:
        return run.use.resources[:3]
    return list(run.summary.get("utilisation", {}))[:3]


def failure_table(run: RunResults) -> list[ReportTable]:
    """Pods without a node by reason."""
    failed: dict[str, int] = run.summary.get("failed", {})
    if not failed:
        return []
    rows = [[count, reason] for reason, count in list(failed.items())[:REASONS_MAX]]
    return [
        ReportTable(
            "Pods without a node, by reason", [Column("Pods", "count"), Column("Reason")], rows
        )
    ]


def fairness_items(run: RunResults) -> list[Chart | ReportTable]:
    """Per queue, or namespace: pods, waits, and the share of what was allocated over time."""
    use = run.use
    if use is None or not run.placements or not use.groups:
        return []
    places = np.array(use.pod_groups, dtype=np.intp)
    amounts, wanted = _amount_times(run)
    dominant = int(np.argmax(amounts.sum(axis=0))) if amounts.size else 0
    rows = []
    for k, name in enumerate(use.groups):
        mine = places == k
        rows.append([name, *_group_row(run, mine, amounts[:, dominant], wanted[:, dominant])])
    rows.sort(key=lambda row: -row[1])
    resource = label_of(use.resources[dominant]) if use.resources else ""
    columns = [
        Column(use.grouped_by.capitalize()),
        Column("Pods", "count"),
        Column("Placed", "count"),
        Column("Mean wait", "time"),
        Column("95th percentile", "time"),
        Column("Requested share", "percent"),
        Column("Allocated share", "percent"),
        Column("Allocated of requested", "percent"),
    ]
    if not run.is_replay:
        for_fill = [k for k, one in enumerate(columns) if one.unit != "time"]
        columns = [columns[k] for k in for_fill]
        rows = [[row[k] for k in for_fill] for row in rows]
    what = "amount times run time" if run.is_replay else "amount"
    note = f"Shares are of {resource} ({what}), the resource that is used most of its capacity."
    table = ReportTable(f"By {use.grouped_by}", columns, rows, note=note)
    return [*_share_chart(use.grouped_by, resource, columns, rows), table]


def _share_chart(
    by: str, resource: str, columns: list[Column], rows: list[list[Any]]
) -> list[Chart]:
    if len(rows) < 2:
        return []
    at = {column.name: k for k, column in enumerate(columns)}
    charted = rows[:GROUPS_CHARTED]
    y = Axis("share", "percent", low=0.0)
    series = [
        Bars("requested", [row[at["Requested share"]] for row in charted]),
        Bars("allocated", [row[at["Allocated share"]] for row in charted]),
    ]
    title = f"Share of {resource} requested and allocated, by {by}"
    return [BarChart(title, by, [row[0] for row in charted], y, series)]


def _amount_times(run: RunResults) -> tuple[Floats, Floats]:
    """float (n_pods, n_resources), shares of the capacity: allocated and requested.

    In a replay times the seconds that the pod ran, and those from its arrival to its end."""
    offered = run.offered()
    asks = run.requests() / np.where(offered > 0, offered, np.inf)
    placed = np.array([bool(one.node) for one in run.placements], dtype=float)
    if not run.is_replay:
        return asks * placed[:, None], asks
    end = float(run.summary.get("ended_at_s", 0.0))
    arrived, bound, ended = (run.times(name) for name in ("arrived_s", "bound_s", "ended_s"))
    ended, bound = np.minimum(ended, end), np.minimum(bound, end)
    ran = np.maximum(ended - bound, 0.0)
    there = np.maximum(ended - np.minimum(arrived, end), 0.0)
    return asks * ran[:, None], asks * there[:, None]


def _group_row(run: RunResults, mine: NDArray[np.bool_], got: Floats, wanted: Floats) -> list[Any]:
    waits = run.times("wait_s")[mine]
    bound = np.sort(waits[np.isfinite(waits)])
    mean = float(bound.mean()) if bound.size else None
    p95 = float(bound[-(-95 * bound.size // 100) - 1]) if bound.size else None
    placed = sum(bool(run.placements[k].node) for k in np.flatnonzero(mine).tolist())
    shares = [
        100 * float(one[mine].sum()) / total if (total := float(one.sum())) else None
        for one in (wanted, got)
    ]
    whole = float(wanted[mine].sum())
    ratio = 100 * float(got[mine].sum()) / whole if whole else None
    return [int(mine.sum()), placed, mean, p95, *shares, ratio]


def autoscaler_note(run: RunResults) -> list[str]:
    """A sentence about nodes that came and went."""
    left = run.summary.get("nodes_left", 0)
    return [f"{left:,} times a node left during the run."] if left else []


def what_was_run(run: RunResults) -> ReportTable:
    """Command, versions, seeds and hashes, so that the run can be repeated."""
    summary = run.summary
    rows: list[list[Any]] = []
    for name, value in run.description.items():
        if name not in ("key", "hashes", "versions"):
            rows.append([name, flat(value)])
    rows.append(["seed", str(summary.get("seed", ""))])
    rows += [[f"version of {name}", value] for name, value in summary.get("versions", {}).items()]
    rows.append(["configuration (SHA-256)", summary.get("configuration", "")])
    for kind in ("inputs", "plugins"):
        rows += [
            [f"{kind[:-1]} {name} (SHA-256)", text] for name, text in summary.get(kind, {}).items()
        ]
    rows += [[f"replay: {name}", flat(value)] for name, value in summary.get("replay", {}).items()]
    rows += [["note", note] for note in summary.get("notes", [])]
    return ReportTable(
        "What was run", [Column("What"), Column("Value")], [row for row in rows if row[1] != ""]
    )


def flat(value: object) -> str:
    """A value of JSON as a short text."""
    if isinstance(value, dict):
        return ", ".join(f"{name}={flat(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(flat, value))
    return "" if value is None else str(value)
