"""The demonstration as one HTML file: its nodes at any moment, what was expected, and the waits."""

from __future__ import annotations

from stowplan.examples.demo import DemoResult
from stowplan.examples.demo_explanations import explain_placement
from stowplan.examples.demo_state import ObservedPod
from stowplan.web.charts import Column, Fact, ReportPage, ReportTable, Section
from stowplan.web.model.replay_intervals import (
    NEVER,
    TIME,
    PodInterval,
    RunIntervals,
    replay_body,
)
from stowplan.web.replay_maps import map_of_frame

NOTE = "Any moment of the demonstration: move the slider, or play. A pod counts from its binding."


def demo_report(result: DemoResult) -> ReportPage:
    """The report of a run of the demonstration."""
    sections = [
        Section(
            "Nodes", [map_of_frame(replay_body(demo_intervals(result)), "Nodes at a time", NOTE)]
        ),
        Section("What was expected", [_checks(result)]),
        Section("Placements", [_placements(result)]),
        Section("Waits", [_waits(result)]),
    ]
    n_held = sum(one.held for one in result.checks)
    facts = [
        Fact("Checks passed", f"{n_held} of {len(result.checks)}"),
        Fact("Pods", str(len(result.view.pods)), "deleted ones included"),
        Fact("Nodes", str(len(result.view.nodes))),
        Fact("Time", f"{result.took_s:.0f} s"),
    ]
    subtitle = (
        "A small embedded cluster: pods one by one, gangs, queues, preemption, a node that dies"
    )
    return ReportPage("Demonstration", subtitle, facts, sections)


def demo_intervals(result: DemoResult) -> RunIntervals:
    """When each pod was on its node, in seconds from the start."""

    def seconds(at: int) -> float:
        return NEVER if not at else round((at - result.began) / 1e9, 3)

    def interval(one: ObservedPod) -> PodInterval:
        bound = seconds(one.placed_at)
        return PodInterval(
            one.pod, one.pod.node_name, seconds(one.created_at), bound, seconds(one.deleted_at)
        )

    pods = [interval(one) for one in result.view.pods.values()]
    nodes = sorted(result.view.nodes.values(), key=lambda one: one.name)
    objects = [*result.view.groups.values(), *result.view.queues.values()]
    return RunIntervals(nodes, pods, objects, TIME, round(result.took_s, 3))


def _checks(result: DemoResult) -> ReportTable:
    rows = [[one.expected, one.seen, "yes" if one.held else "no"] for one in result.checks]
    return ReportTable("Checks", [Column("expected"), Column("observed"), Column("held")], rows)


def _placements(result: DemoResult) -> ReportTable:
    columns = [
        Column("app"),
        Column("scheduler"),
        Column("placed", "count"),
        Column("of", "count"),
        Column("nodes"),
        Column("reason"),
    ]
    rows = [
        [
            one.app,
            one.decided_by,
            one.n_placed,
            one.n_pods,
            ", ".join(f"{name}: {count}" for name, count in one.where.items()),
            explain_placement(one),
        ]
        for one in result.placements
    ]
    return ReportTable("By app", columns, rows)


def _waits(result: DemoResult) -> ReportTable:
    columns = [
        Column("scheduler"),
        Column("pods", "count"),
        Column("p50", "time"),
        Column("p99", "time"),
    ]
    rows = [[one.decided_by, one.n_pods, one.p50_s, one.p99_s] for one in result.waits]
    return ReportTable("From creation to binding", columns, rows)
