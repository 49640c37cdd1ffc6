"""The report of an experiment: policies compared, per workload and set of options."""

from __future__ import annotations

from typing import Any

from stowplan.web import comparison_items, run_charts, run_tables
from stowplan.web.charts import (
    Axis,
    BarChart,
    Bars,
    Chart,
    Column,
    Fact,
    ReportPage,
    ReportTable,
    Section,
)
from stowplan.web.published_figures import published_sections
from stowplan.web.report_data import TABLE, ExperimentResults, RunEntry, RunResults, read_table
from stowplan.web.run_charts import PolicyRuns

SETTINGS_CHARTED_MAX = 6
SEEDS_CHARTED_MAX = 10
"""Charts over time read all placements; tables have every run."""
ROWS_OPEN = 40


def experiment_report(results: ExperimentResults) -> ReportPage:
    """The report of an experiment."""
    comparison = comparison_items.comparison_of(results)
    policies = list(dict.fromkeys([*comparison.policies, *(one.policy for one in results.entries)]))
    colours = {name: place for place, name in enumerate(policies)}
    sections = [
        Section(
            "What differs",
            [
                *comparison_items.interval_charts(comparison, colours),
                *comparison_items.difference_table(comparison),
            ],
            comparison_items.verdict_texts(comparison),
        ),
        Section(
            "Measures",
            [
                *comparison_items.measure_charts(results.measurements, comparison, colours),
                *comparison_items.measure_table(results.measurements),
            ],
        ),
        *_published(results),
        *_settings(results, colours),
        *_fairness_sections(results, colours),
        Section("Runs", _run_tables(results)),
    ]
    title = str(results.description.get("title") or results.folder.resolve().name)
    subtitle = f"{len(policies)} policies compared" if len(policies) > 1 else "Several runs"
    return ReportPage(title, subtitle, _facts(results, policies), sections)


def _published(results: ExperimentResults) -> list[Section]:
    path = results.folder / TABLE
    return published_sections(read_table(path)) if path.is_file() else []


def _facts(results: ExperimentResults, policies: list[str]) -> list[Fact]:
    entries = results.entries
    if not entries:
        return []
    done = sum(one.status in ("", "done") for one in entries)
    failed = len(entries) - done
    settings = {one.setting for one in entries}
    seeds = {one.seed for one in entries}
    return [
        Fact(
            "Runs", f"{done:,}", f"of {len(entries):,}" + (f", {failed} not done" if failed else "")
        ),
        Fact("Policies", f"{len(policies):,}", _few(policies)),
        Fact("Workloads and options", f"{len(settings):,}", _few(sorted(settings))),
        Fact("Seeds", f"{len(seeds):,}", f"{min(seeds)} to {max(seeds)}"),
    ]


def _few(names: list[str]) -> str:
    return ", ".join(names[:4]) + (", ..." if len(names) > 4 else "")


def _settings(results: ExperimentResults, colours: dict[str, int]) -> list[Section]:
    """A section per setting with the charts of its runs."""
    settings = list(dict.fromkeys(one.setting for one in results.entries))
    found: list[Section] = []
    for setting in settings:
        if len(found) == SETTINGS_CHARTED_MAX:
            break
        groups = _groups(results, setting, colours)
        items = _charts(groups)
        if items:
            found.append(Section(setting or "Over time", items, _notes(results, setting, groups)))
    return found


def _groups(results: ExperimentResults, setting: str, colours: dict[str, int]) -> list[PolicyRuns]:
    found = []
    for policy, colour in colours.items():
        mine = [one for one in results.entries if (one.policy, one.setting) == (policy, setting)]
        mine.sort(key=lambda one: one.seed)
        runs = [results.run(one) for one in mine[:SEEDS_CHARTED_MAX] if one.status in ("", "done")]
        known = [run for run in runs if run is not None]
        if known:
            found.append(PolicyRuns(policy, known, colour))
    return found


def _notes(results: ExperimentResults, setting: str, groups: list[PolicyRuns]) -> list[str]:
    n_seeds = max(len(group.runs) for group in groups)
    if n_seeds == 1:
        return []
    n_all = len({one.seed for one in results.entries if one.setting == setting})
    which = f"the first {n_seeds} of {n_all}" if n_all > n_seeds else str(n_seeds)
    return [f"Lines are means over {which} seeds, bands reach from the lowest to the highest."]


def _charts(groups: list[PolicyRuns]) -> list[Chart | ReportTable]:
    if not groups:
        return []
    return [
        *run_charts.load_charts(groups),
        *run_charts.utilisation_charts(groups),
        *run_charts.queue_charts(groups),
        *run_charts.wait_chart(groups),
        *run_charts.fragmentation_charts(groups),
        *run_charts.node_charts(groups),
        *run_charts.histogram_chart(groups),
    ]


def _fairness_sections(results: ExperimentResults, colours: dict[str, int]) -> list[Section]:
    """A section per setting: who had how much, by queue or namespace."""
    found: list[Section] = []
    for setting in dict.fromkeys(one.setting for one in results.entries):
        if len(found) == SETTINGS_CHARTED_MAX:
            break
        groups = _groups(results, setting, colours)
        items = [*run_charts.fairness_charts(groups), *_fairness(groups)]
        if items:
            title = f"Fairness: {setting}" if setting else "Fairness"
            texts = _notes(results, setting, groups) + _without_pods(groups)
            found.append(Section(title, items, texts))
    return found


def _without_pods(groups: list[PolicyRuns]) -> list[str]:
    return [
        f"{group.label} placed no pods and has no fairness."
        for group in groups
        if not any(run.summary.get("placed") for run in group.runs)
    ]


def _fairness(groups: list[PolicyRuns]) -> list[Chart | ReportTable]:
    """Allocated of requested by queue or namespace, per policy; the rows of each first seed."""
    rows: list[list[Any]] = []
    columns: list[Column] = []
    ratios: dict[str, dict[str, float]] = {}
    by = "queue"
    for group in groups:
        table = next(
            (
                one
                for one in run_tables.fairness_items(group.runs[0])
                if isinstance(one, ReportTable)
            ),
            None,
        )
        if table is None:
            continue
        by = table.columns[0].name.lower()
        columns = [Column("Policy"), *table.columns]
        rows += [[group.label, *row] for row in table.rows]
        ratios[group.label] = {row[0]: row[-1] for row in table.rows}
    if not rows:
        return []
    names = list(dict.fromkeys(name for found in ratios.values() for name in found))[:12]
    series = [
        Bars(group.label, [ratios[group.label].get(name) for name in names], colour=group.colour)
        for group in groups
        if group.label in ratios
    ]
    y = Axis("allocated of requested", "percent", low=0.0)
    chart = BarChart(f"Allocated of requested, by {by}", by, names, y, series)
    return [
        chart,
        ReportTable(f"By policy and {by}, first seed", columns, rows, is_open=len(rows) <= 12),
    ]


def _run_tables(results: ExperimentResults) -> list[Chart | ReportTable]:
    found: list[Chart | ReportTable] = []
    if results.failures:
        by_key = {one.key: one for one in results.entries}
        rows = [_failure(by_key[key], text) for key, text in results.failures.items()]
        columns = [Column("Policy"), Column("Setting"), Column("Seed", "count"), Column("Error")]
        found.append(ReportTable("Failed runs", columns, rows))
    if results.entries:
        rows = [
            [one.policy, one.setting, one.seed, one.status or "done", one.key]
            for one in results.entries
        ]
        columns = [Column("Policy"), Column("Setting"), Column("Seed", "count"), Column("Status")]
        is_open = len(rows) <= ROWS_OPEN
        found.append(ReportTable("Runs", [*columns, Column("Key")], rows, is_open=is_open))
    description = _description(results)
    return [*found, description] if description.rows else found


def _failure(entry: RunEntry, text: str) -> list[Any]:
    return [entry.policy, entry.setting, entry.seed, text]


def _description(results: ExperimentResults) -> ReportTable:
    """Command, versions and hashes."""
    tree = results.description
    names = ("command", "mode", "policies", "workloads", "options", "seeds")
    rows: list[list[Any]] = [[name, run_tables.flat(tree.get(name))] for name in names]
    for kind in ("versions", "hashes"):
        found = tree.get(kind)
        for name, value in found.items() if isinstance(found, dict) else ():
            if isinstance(value, dict):
                rows += [[f"{name}: {part}", run_tables.flat(one)] for part, one in value.items()]
            else:
                rows.append([f"{kind}: {name}", run_tables.flat(value)])
    run = next((found for found in map(results.run, results.entries[:1]) if found), None)
    if run is not None and not tree.get("versions"):
        rows += _of_run(run)
    known = [row for row in rows if row[1]]
    return ReportTable("What was run", [Column("What"), Column("Value")], known)


def _of_run(run: RunResults) -> list[list[Any]]:
    return [row for row in run_tables.what_was_run(run).rows if row[0] not in ("seed", "note")]
