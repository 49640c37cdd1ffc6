"""Regression gate: conditions of --fail-if on the runs of an experiment.

Conditions compare means over the seeds that the policies have in common; `A` is the baseline, `B`,
`C` and so on the other policies in their order. What has no value counts as a failure: a gate that
measured nothing must not pass.
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Sequence

from stowplan.experiments.measures.measure_table import Measure
from stowplan.experiments.statistics.matrix_comparison import Row, RunSetting, RunTable
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.input_error import InputError
from stowplan.insight.measure_conditions import (
    Comparison,
    PolicyComparison,
    PolicyCondition,
    parse_policy_condition,
)

Check = tuple[bool, str]
"""Whether a comparison holds, and its values in words."""


def failed_conditions(
    rows: Iterable[Row], conditions: Sequence[str], baseline: str | None = None
) -> list[str]:
    """The conditions that hold in some workload with some options, a line each with the values;
    nothing where the gate passes. Raises InputError for an invalid condition, an unknown measure or
    policy."""
    table = RunTable.of(rows)
    base = baseline or next(iter(table.policies), "")
    names = _letters([base, *(name for name in table.policies if name != base)])
    parsed = [parse_policy_condition(text) for text in conditions]
    for condition in parsed:
        _check_names(condition, table, names)
    lines = []
    for text, condition in zip(conditions, parsed, strict=True):
        for setting in table.settings:
            held = _held(condition, table, setting, names)
            if held:
                lines.append(f"{setting.text}: {text} ({held})")
    return lines


def check_conditions(
    conditions: Sequence[str], measures: Sequence[Measure], policies: Sequence[str]
) -> None:
    """Raise InputError for an invalid condition, or one with a measure or policy that no run will
    have. policies: the baseline first."""
    names = _letters(policies)
    for condition in map(parse_policy_condition, conditions):
        for one in condition.comparisons:
            check_measure(condition.source, one.measure, measures)
            _check_policies(condition.source, one, names)


def check_measure(source: str, name: str, measures: Sequence[Measure]) -> None:
    """Raise InputError for a name that is neither a measure nor of a family of them."""
    family = name.partition(".")[0]
    if not any(name == one.name or (one.of and family == one.name) for one in measures):
        _check_known(source, "measure", name, [one.name for one in measures])


def _letters(policies: Sequence[str]) -> dict[str, str]:
    """What a condition may call a policy -> its name. Names take precedence over letters."""
    letters = dict(zip(string.ascii_uppercase, policies, strict=False))
    return letters | {name: name for name in policies}


def _check_names(condition: PolicyCondition, table: RunTable, names: dict[str, str]) -> None:
    for one in condition.comparisons:
        _check_known(condition.source, "measure", one.measure, table.measures)
        _check_policies(condition.source, one, names)


def _check_policies(source: str, one: Comparison | PolicyComparison, names: dict[str, str]) -> None:
    if isinstance(one, PolicyComparison):
        for side in (one.left, one.right):
            _check_known(source, "policy", side, list(names))


def _check_known(source: str, what: str, name: str, known: Sequence[str]) -> None:
    if name not in known:
        hint = did_you_mean(name, known)
        wanted = f"one of {', '.join(known)}" + (f"; {hint}" if hint else "")
        raise InputError(source, "", f"unknown {what} {name!r}", wanted)


def _held(
    condition: PolicyCondition, table: RunTable, setting: RunSetting, names: dict[str, str]
) -> str:
    """The values of the first alternative that holds, "" where none does."""
    for group in condition.alternatives:
        found = [_compared(one, table, setting, names) for one in group]
        if all(holds for holds, _ in found):
            return ", ".join(text for _, text in found)
    return ""


def _compared(
    one: Comparison | PolicyComparison, table: RunTable, setting: RunSetting, names: dict[str, str]
) -> Check:
    if isinstance(one, Comparison):
        return _compared_with_number(one, table, setting)
    left, right = names[one.left], names[one.right]
    sides = [table.of_policy(setting, name).get(one.measure, {}) for name in (left, right)]
    seeds = sorted(sides[0].keys() & sides[1].keys())
    if not seeds:
        return True, f"{one.measure} of {left} and {right} has no value"
    means = [sum(side[seed] for seed in seeds) / len(seeds) for side in sides]
    return one.holds(*means), f"{one.measure} {left} {means[0]:g}, {right} {means[1]:g}"


def _compared_with_number(one: Comparison, table: RunTable, setting: RunSetting) -> Check:
    """Whether the comparison holds for any policy."""
    texts = []
    for policy in table.policies:
        values = table.of_policy(setting, policy).get(one.measure, {})
        if not values:
            texts.append(f"{one.measure} of {policy} has no value")
            continue
        mean = sum(values.values()) / len(values)
        if one.holds({one.measure: mean}):
            texts.append(f"{one.measure} {policy} {mean:g}")
    return bool(texts), ", ".join(texts)
