"""Comparison of an experiment: the baseline against every policy, per workload and options.

The rows are those of `measures.csv`: `policy`, `workload`, `seed`, `measure`, `value`; every other
column is an option.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from stowplan.experiments.measures.measure_table import Measure, measure_of
from stowplan.experiments.statistics.paired import CONFIDENCE, smallest_p
from stowplan.experiments.statistics.paired_comparison import (
    MeasureComparison,
    MeasureText,
    compare,
)
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.input_error import InputError
from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.encoding.html_summary import (
    NamedInterval,
    html_intervals,
    html_summary,
    html_table,
    html_text,
)

OWN_COLUMNS = ("policy", "workload", "seed", "measure", "value")
COMPARISON = "comparison.json"

Row = Mapping[str, Any]
BySeed = dict[int, float]


class RunSetting(msgspec.Struct, frozen=True, order=True):
    """A workload with options, sorted by name."""

    workload: str
    options: tuple[tuple[str, str], ...] = ()

    @property
    def text(self) -> str:
        """`WORKLOAD (OPTION=VALUE, ...)`."""
        options = ", ".join(f"{name}={value}" for name, value in self.options)
        return f"{self.workload} ({options})" if options else self.workload


class PolicyResult(msgspec.Struct, frozen=True, rename="camel"):
    """A policy against the baseline, with one workload and one set of options.

    seeds: those that both ran with. missing: seeds that only one of them has. verdict: what
    differs, in words. notes: what limits the comparison.
    """

    policy: str
    baseline: str
    workload: str
    options: dict[str, str]
    seeds: list[int]
    missing: list[int]
    measures: list[MeasureComparison]
    verdict: str
    notes: list[str] = []

    @property
    def setting(self) -> str:
        """Workload and options in words."""
        return RunSetting(self.workload, tuple(self.options.items())).text


class ExperimentComparison(msgspec.Struct, rename="camel"):
    """Comparison of an experiment. policies: the baseline first. confidence: of intervals; 1 less
    it is the significance of a result's measures together."""

    baseline: str
    policies: list[str]
    confidence: float
    results: list[PolicyResult]
    notes: list[str] = []

    @property
    def text(self) -> str:
        """The verdicts, a line each."""
        lines = []
        for one in self.results:
            lines.append(f"{one.setting}: {one.verdict}")
            lines += [f"  note: {note}" for note in one.notes]
        return "\n".join([*lines, *self.notes])

    def __repr__(self) -> str:
        return f"ExperimentComparison({', '.join(self.policies)}; baseline {self.baseline})"

    def _repr_html_(self) -> str:
        """For notebooks: what differs, and by how much."""
        return html_summary(repr(self), *self.html_parts())

    def html_parts(self) -> tuple[str, ...]:
        """Verdicts, means, and relative differences with their intervals."""
        verdicts = [(one.setting, one.verdict) for one in self.results]
        means, intervals = [], []
        for one in self.results:
            for each in one.measures:
                mean_b, mean_a = (
                    f"{mean:g}" if each.seeds else "" for mean in (each.mean_b, each.mean_a)
                )
                means.append((one.setting, each.measure, one.policy, mean_b, mean_a))
                value, low, high = each.relative, each.relative_low, each.relative_high
                if value is not None and low is not None and high is not None:
                    name = f"{each.measure}: {one.policy}"
                    intervals.append(NamedInterval(name, value, low, high, each.is_different))
        label = f"Differences from {self.baseline} with intervals"
        return (
            html_table(("Workload", "Verdict"), verdicts),
            html_table(("Workload", "Measure", "Policy", "Mean", "Baseline"), means),
            html_intervals(intervals, label),
            *map(html_text, self.notes),
        )

    def to_json(self) -> bytes:
        """The content of `comparison.json`."""
        return msgspec.json.format(msgspec.json.encode(self), indent=2) + b"\n"

    def to_frame(self, library: str = "") -> Any:
        """A DataFrame of pandas or polars, a row per policy, setting and measure."""
        columns: dict[str, list[Any]] = {"policy": [], "baseline": [], "workload": []}
        names = [name for name in MeasureComparison.__struct_fields__ if name != "verdict"]
        options = list(dict.fromkeys(name for one in self.results for name in one.options))
        columns |= {name: [] for name in (*options, *names)}
        for one in self.results:
            for measure in one.measures:
                values = {"policy": one.policy, "baseline": one.baseline, "workload": one.workload}
                values |= {name: one.options.get(name, "") for name in options}
                values |= {name: getattr(measure, name) for name in names}
                for name, value in values.items():
                    columns[name].append(value)
        return to_dataframe(columns, library)


def compare_runs(
    rows: Iterable[Row],
    baseline: str | None = None,
    measures: Sequence[str] = (),
    confidence: float = CONFIDENCE,
    own: Iterable[Measure] = (),
) -> ExperimentComparison:
    """Compare every policy with the baseline, per workload and options, paired by seed.

    baseline: the first policy of the rows where it is None. measures: names or families; () for
    those that the table marks as compared. own: further measures. Raises InputError for a policy or
    measure that no row has, and for values that are no numbers.
    """
    table = RunTable.of(rows)
    if not table.policies:
        raise InputError("measures", "", "no rows", "rows of at least one policy")
    base = table.policies[0] if baseline is None else baseline
    if base not in table.policies:
        raise InputError.at("baseline", "", _unknown("policy", base, table.policies))
    chosen = _chosen(table.measures, measures, list(own))
    others = [name for name in table.policies if name != base]
    found = ExperimentComparison(base, [base, *others], confidence, [])
    for setting in table.settings:
        for policy in others:
            found.results.append(_result(table, setting, base, policy, chosen, confidence))
    if not others:
        found.notes.append(f"one policy only, {base}: nothing to compare")
    found.notes += _without_pods(table)
    return found


def _without_pods(table: RunTable) -> list[str]:
    """Policies that placed no pod with any seed, most often as they decide pods of another
    scheduler name: their waits and shares compare nothing."""
    idle = {
        policy: None
        for setting in table.settings
        for policy in table.policies
        if (placed := table.of_policy(setting, policy).get("placed")) and not any(placed.values())
    }
    return [
        f"{policy} placed no pods: `failed` in runs/KEY/summary.json says why" for policy in idle
    ]


class RunTable:
    """Rows by setting, policy and measure. policies, measures: in the order of the rows; settings:
    sorted. values: setting -> policy -> measure -> seed -> value."""

    def __init__(self) -> None:
        self.values: dict[RunSetting, dict[str, dict[str, BySeed]]] = {}
        self.seeds: dict[tuple[RunSetting, str], set[int]] = {}
        self.policies: list[str] = []
        self.measures: list[str] = []

    @classmethod
    def of(cls, rows: Iterable[Row]) -> RunTable:
        """Read rows; a value that is None or empty counts as none. Raises InputError."""
        table = cls()
        policies: dict[str, None] = {}
        measures: dict[str, None] = {}
        for number, row in enumerate(rows, start=1):
            missing = [name for name in OWN_COLUMNS if name not in row]
            if missing:
                raise InputError("measures", f"row {number}", f"no {missing[0]}", "every column")
            options = [(name, str(row[name])) for name in row if name not in OWN_COLUMNS]
            setting = RunSetting(str(row["workload"]), tuple(sorted(options)))
            policy, name, seed = str(row["policy"]), str(row["measure"]), _seed(row, number)
            policies[policy] = measures[name] = None
            table.seeds.setdefault((setting, policy), set()).add(seed)
            by_measure = table.values.setdefault(setting, {}).setdefault(policy, {})
            value = _value(row, number)
            if value is not None:
                by_measure.setdefault(name, {})[seed] = value
        table.policies, table.measures = list(policies), list(measures)
        return table

    @property
    def settings(self) -> list[RunSetting]:
        """Workloads with options."""
        return sorted(self.values)

    def of_policy(self, setting: RunSetting, policy: str) -> dict[str, BySeed]:
        """Measure -> seed -> value."""
        return self.values[setting].get(policy, {})


def _result(
    table: RunTable,
    setting: RunSetting,
    baseline: str,
    policy: str,
    chosen: Sequence[MeasureText],
    confidence: float,
) -> PolicyResult:
    a, b = table.of_policy(setting, baseline), table.of_policy(setting, policy)
    texts = [one for one in chosen if one.name in a or one.name in b]
    measures = compare(a, b, texts, (baseline, policy), confidence)
    seeds = [table.seeds.get((setting, name), set()) for name in (baseline, policy)]
    both, either = sorted(seeds[0] & seeds[1]), sorted(seeds[0] ^ seeds[1])
    return PolicyResult(
        policy,
        baseline,
        setting.workload,
        dict(setting.options),
        both,
        either,
        measures,
        _verdict(policy, baseline, measures, len(both)),
        [
            *_notes(a, b, measures, both, either, confidence),
            *_without_value(a, b, texts, (baseline, policy)),
        ],
    )


def _verdict(
    policy: str, baseline: str, measures: Sequence[MeasureComparison], n_seeds: int
) -> str:
    """What differs, then what does not, in one sentence."""
    different = [one.verdict for one in measures if one.is_different or _is_one_run(one)]
    open_ = [one for one in measures if one.verdict not in different and one.seeds]
    equal = [one.measure for one in open_ if one.difference == 0.0 and one.low == one.high]
    rest = [one.measure for one in open_ if one.measure not in equal]
    seeds = f"{n_seeds} seed{'s' if n_seeds != 1 else ''}"
    parts = list(different)
    if rest:
        parts.append(f"{', '.join(rest)}: no difference found on {seeds}")
    if equal:
        parts.append(f"{', '.join(equal)}: equal")
    return f"{policy} against {baseline}: " + ("; ".join(parts) or "no measure in common")


def _is_one_run(one: MeasureComparison) -> bool:
    """True where the policies differ and the seeds change neither."""
    return one.difference != 0.0 and one.low == one.high and not one.is_different


def _notes(
    a: Mapping[str, BySeed],
    b: Mapping[str, BySeed],
    measures: Sequence[MeasureComparison],
    both: Sequence[int],
    either: Sequence[int],
    confidence: float,
) -> list[str]:
    found = []
    n_tests = sum(one.low != one.high or one.is_different for one in measures)
    least = smallest_p(len(both)) * max(n_tests, 1)
    if n_tests and least > 1 - confidence:
        found.append(
            f"{len(both)} seeds cannot show a difference of {n_tests} measures: the smallest p is "
            f"2/2^{len(both)} times {n_tests}; compare fewer measures or run more seeds"
        )
    if either:
        found.append(f"seeds that only one of them has: {', '.join(map(str, either))}")
    placed = [{seed: one.get("placed", {}).get(seed) for seed in both} for one in (a, b)]
    if placed[0] != placed[1] and any(one.measure.startswith("wait") for one in measures):
        found.append("they placed different numbers of pods; waits are of pods that were bound")
    return found


def _without_value(
    a: Mapping[str, BySeed],
    b: Mapping[str, BySeed],
    texts: Sequence[MeasureText],
    labels: tuple[str, str],
) -> list[str]:
    """Measures that only one of the two has: nothing that a policy has not done is better."""
    found = []
    for name, mine, other in zip(labels, (a, b), (b, a), strict=True):
        missing = [one.name for one in texts if not mine.get(one.name) and other.get(one.name)]
        if missing:
            found.append(f"{name} has no value of {', '.join(missing)}")
    return found


def _chosen(
    known: Sequence[str], names: Sequence[str], own: Sequence[Measure]
) -> list[MeasureText]:
    """The compared measures, in the order of the rows."""
    for name in names:
        if not any(one == name or one.startswith(f"{name}.") for one in known):
            raise InputError.at("measures", "", _unknown("measure", name, known))
    found = []
    for name in known:
        measure = measure_of(name, own)
        if names:
            is_chosen = any(name == one or name.startswith(f"{one}.") for one in names)
        else:
            is_chosen = measure is None or measure.compared
        if is_chosen:
            unit, better = (measure.unit, measure.better) if measure else ("", "")
            found.append(MeasureText(name, name, unit, better))
    return found


def _unknown(what: str, name: str, known: Sequence[str]) -> str:
    hint = did_you_mean(name, known)
    tail = f" ({hint})" if hint else ""
    return f"unknown {what} {name!r}: expected one of {', '.join(known)}{tail}"


def _seed(row: Row, number: int) -> int:
    try:
        return int(row["seed"])
    except (TypeError, ValueError):
        got = repr(row["seed"])
        raise InputError("measures", f"row {number}, seed", got, "a whole number") from None


def _value(row: Row, number: int) -> float | None:
    value = row["value"]
    if value is None or value == "":
        return None
    try:
        found = float(value)
    except (TypeError, ValueError):
        found = math.nan
    if not math.isfinite(found):
        raise InputError("measures", f"row {number}, value", repr(value), "a finite number")
    return found
