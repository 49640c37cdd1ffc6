"""What differs between policies: estimates with intervals, verdicts, and all measures."""

from __future__ import annotations

import msgspec
import numpy as np

from stowplan.inputs.input_error import InputError
from stowplan.web.charts import (
    Axis,
    BarChart,
    Bars,
    Chart,
    Column,
    Estimate,
    IntervalChart,
    ReportTable,
)
from stowplan.web.report_data import COMPARISON, ExperimentResults, Measurement, RunEntry

SETTINGS_CHARTED = 6
MEASURES_CHARTED = 6
MEASURES_COMPARED = 12
ROWS_OPEN = 40
VERDICTS_LISTED = 12
"""Sentences; the table of differences has all verdicts."""
NOTHING = (None, None, None)
UNSURE = "no difference found"


class MeasureDifference(msgspec.Struct, frozen=True, rename="camel"):
    """A measure of a policy against the baseline, as `comparison.json` has it.

    relative and its ends: parts of the baseline's mean, None where that is 0."""

    measure: str
    seeds: int = 0
    mean_a: float | None = None
    mean_b: float | None = None
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    relative: float | None = None
    relative_low: float | None = None
    relative_high: float | None = None
    p_corrected: float | None = None
    effect: float | None = None
    is_different: bool = False
    verdict: str = ""


class PolicyDifference(msgspec.Struct, frozen=True, rename="camel"):
    """A policy against the baseline with one workload and one set of options."""

    policy: str
    baseline: str = ""
    workload: str = ""
    options: dict[str, object] = {}
    measures: list[MeasureDifference] = []
    verdict: str = ""
    notes: list[str] = []

    @property
    def setting(self) -> str:
        """Workload and options."""
        return RunEntry("", workload=self.workload, options=self.options).setting


class ComparisonFile(msgspec.Struct, frozen=True, rename="camel"):
    """Content of `comparison.json`."""

    baseline: str = ""
    policies: list[str] = []
    confidence: float = 0.95
    results: list[PolicyDifference] = []
    notes: list[str] = []


def comparison_of(results: ExperimentResults) -> ComparisonFile:
    """The comparison of an experiment; raises InputError."""
    try:
        return msgspec.convert(results.comparison, ComparisonFile)
    except msgspec.ValidationError as problem:
        raise InputError.at(str(results.folder / COMPARISON), "", problem) from None


def verdict_texts(comparison: ComparisonFile) -> list[str]:
    """The verdicts, a sentence per setting and policy, as far as there are not too many."""
    found = []
    for one in comparison.results:
        if one.verdict:
            found.append(f"{one.setting}: {one.verdict}." if one.setting else f"{one.verdict}.")
        found += one.notes
    # The notes of several settings are often the same.
    texts = list(dict.fromkeys([*found, *comparison.notes]))
    n_more = len(texts) - VERDICTS_LISTED
    return (
        [*texts[:VERDICTS_LISTED], f"And {n_more:,} more: see the table."] if n_more > 1 else texts
    )


def interval_charts(comparison: ComparisonFile, colours: dict[str, int]) -> list[Chart]:
    """Differences from the baseline in percent, a chart per setting."""
    settings = dict.fromkeys(one.setting for one in comparison.results)
    share = f"{comparison.confidence:.0%}"
    found: list[Chart] = []
    for setting in list(settings)[:SETTINGS_CHARTED]:
        estimates = _estimates(comparison, setting, colours)
        if estimates:
            x = Axis(f"difference from {comparison.baseline}, percent of its mean", "percent")
            title = f"Difference from {comparison.baseline}" + (f": {setting}" if setting else "")
            note = (
                f"With {share} intervals. Filled dots: a difference was found; open ones: none was."
            )
            found.append(IntervalChart(title, x, estimates, 0.0, note))
    return found


def _estimates(comparison: ComparisonFile, setting: str, colours: dict[str, int]) -> list[Estimate]:
    rows = [
        (measure, one.policy)
        for one in comparison.results
        if one.setting == setting
        for measure in one.measures
        if None not in (measure.relative, measure.relative_low, measure.relative_high)
    ]
    names = list(dict.fromkeys(measure.measure for measure, _ in rows))[:MEASURES_COMPARED]
    return [
        Estimate(
            name,
            policy,
            100 * (measure.relative or 0.0),
            100 * (measure.relative_low or 0.0),
            100 * (measure.relative_high or 0.0),
            "differs" if measure.is_different else UNSURE,
            colours.get(policy),
        )
        for name in names
        for measure, policy in rows
        if measure.measure == name
    ]


def difference_table(comparison: ComparisonFile) -> list[ReportTable]:
    """All differences with intervals and verdicts."""
    rows = [
        [
            one.setting,
            measure.measure,
            one.policy,
            measure.verdict or ("differs" if measure.is_different else UNSURE),
            # Without a seed on which both have the measure there is nothing to show.
            *([measure.mean_a, measure.mean_b, measure.difference] if measure.seeds else NOTHING),
            measure.low,
            measure.high,
            measure.seeds,
            measure.p_corrected,
        ]
        for one in comparison.results
        for measure in one.measures
    ]
    if not rows:
        return []
    names = ["Mean of policy", "Difference", "From", "To"]
    columns = [Column("Setting"), Column("Measure"), Column("Policy"), Column("Verdict")]
    columns.append(Column(f"Mean of {comparison.baseline}", "number"))
    columns += [Column(name, "number") for name in names]
    columns += [Column("Seeds", "count"), Column("p, corrected", "number")]
    title = f"Differences from {comparison.baseline}, with {comparison.confidence:.0%} intervals"
    return [ReportTable(title, columns, rows, is_open=len(rows) <= ROWS_OPEN)]


def measure_table(measurements: list[Measurement]) -> list[ReportTable]:
    """Mean, lowest and highest of every measure over the seeds."""
    values: dict[tuple[str, str, str], list[float]] = {}
    for one in measurements:
        values.setdefault((one.setting, one.measure, one.policy), []).append(one.value)
    if not values:
        return []
    rows = [
        [*key, float(np.mean(found)), min(found), max(found), len(found)]
        for key, found in values.items()
    ]
    rows.sort(key=lambda row: row[:3])
    columns = [Column("Setting"), Column("Measure"), Column("Policy"), Column("Mean", "number")]
    columns += [Column("Lowest", "number"), Column("Highest", "number"), Column("Seeds", "count")]
    return [ReportTable("All measures", columns, rows, is_open=len(rows) <= ROWS_OPEN)]


def measure_charts(
    measurements: list[Measurement], comparison: ComparisonFile, colours: dict[str, int]
) -> list[Chart]:
    """Bars of the compared measures by setting, with the range over the seeds."""
    compared = dict.fromkeys(
        measure.measure for one in comparison.results for measure in one.measures
    )
    names = list(compared or dict.fromkeys(one.measure for one in measurements))
    settings = list(dict.fromkeys(one.setting for one in measurements))
    found: list[Chart] = []
    for name in names[:MEASURES_CHARTED]:
        values: dict[tuple[str, str], list[float]] = {}
        for one in measurements:
            if one.measure == name:
                values.setdefault((one.policy, one.setting), []).append(one.value)
        series = []
        for policy, colour in colours.items():
            runs = [values.get((policy, setting), []) for setting in settings]
            if any(runs):
                means = [float(np.mean(one)) if one else None for one in runs]
                low = [min(one) if one else None for one in runs]
                high = [max(one) if one else None for one in runs]
                has_ends = any(len(one) > 1 for one in runs)
                series.append(
                    Bars(policy, means, low if has_ends else (), high if has_ends else (), colour)
                )
        if series:
            groups = [setting or "all" for setting in settings]
            note = "Means over the seeds; whiskers from the lowest to the highest."
            axis = Axis(name, _unit_of(name))
            found.append(BarChart(name, "setting", groups, axis, series, note=note))
    return found


def _unit_of(measure: str) -> str:
    return "time" if measure.partition(".")[0].endswith("_s") else "number"
