"""Fair shares by usage over time: a month of three queues, and the record of usage."""

from __future__ import annotations

import importlib.util
import math
from types import ModuleType
from typing import Any

import pytest

from stowplan.apis.batch.cron_schedule import parse_schedule
from stowplan.assembly.sessions.kai_settings import live_kai_options
from stowplan.batch.queue_models.kai.state.kai_usage import KaiUsage, UsageRules
from stowplan.config.queue_models.kai_configuration import KaiConfiguration, read_kai
from stowplan.config.strict_decoder import Problems
from tests.soak import factor
from tests.tidy import tree

DAY = 86_400.0


def figure() -> ModuleType:
    path = tree.ROOT / "docs" / "scripts" / "kai_usage_figure.py"
    spec = importlib.util.spec_from_file_location("kai_usage_figure", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def largest_difference(days: int) -> float:
    """By which a day of a queue differs from the formula."""
    script = figure()
    decided, formula = script.by_day(script.simulated(days)), script.by_day(script.expected(days))
    pairs = zip(decided, formula, strict=True)
    return max(abs(mine[name] - theirs[name]) for mine, theirs in pairs for name in mine)


def test_queues_get_their_part_by_the_formula_day_by_day() -> None:
    # One of 24 cards is 0.042.
    assert largest_difference(30 if factor() > 1 else 13) < 0.03


def test_queues_whose_usage_does_not_count_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KaiUsage, "shares", lambda _: {})
    assert largest_difference(8) > 0.2


def usage(rules: UsageRules, *held: tuple[float, float, float]) -> float:
    """The part of 10 cards. held: days, cards, cards of the cluster."""
    record, now = KaiUsage(rules), 0.0
    record.advance(now)
    for days, cards, total in held:
        record.hold({"q": [0.0, 0.0, cards]}, [0.0, 0.0, total])
        for _ in range(10):
            now += days * DAY / 10
            record.advance(now)
    return record.shares().get("q", (0.0, 0.0, 0.0))[2]


@pytest.mark.parametrize(
    ("rules", "held", "want"),
    [
        # KAI's example: 24 of 100 card hours.
        (UsageRules(), [(1, 2.4, 10)], 0.24),
        # The second half counts twice as much as the first one, a half-life before it.
        (UsageRules(half_life=DAY), [(1, 10, 10), (1, 0, 10)], 1 / 3),
        # What the cluster had then counts, not what it has now.
        (UsageRules(), [(1, 5, 10), (1, 5, 30)], 0.25),
        # What is older than the window does not count.
        (UsageRules(window=2 * DAY), [(3, 10, 10), (1, 0, 10), (1, 10, 10)], 0.5),
        # A window that began 1 day ago.
        (UsageRules(window=2 * DAY, is_fixed=True), [(2, 10, 10), (1, 0, 10)], 0.0),
        # One that began 2 days ago, and one that begins tomorrow.
        (UsageRules(window=2 * DAY, is_fixed=True, start=DAY), [(2, 10, 10), (1, 0, 10)], 0.5),
        (UsageRules(window=2 * DAY, is_fixed=True, start=4 * DAY), [(3, 10, 10)], 0.0),
        # Each day at noon: half a day counts.
        (
            UsageRules(resets=parse_schedule("0 12 * * *")),
            [(0.5, 10, 10), (0.25, 0, 10), (0.25, 4, 10)],
            0.2,
        ),
    ],
)
def test_usage_is_a_part_of_what_the_cluster_had(
    rules: UsageRules, held: list[tuple[float, float, float]], want: float
) -> None:
    assert usage(rules, *held) == pytest.approx(want, abs=0.02)


@pytest.mark.parametrize(
    ("expression", "now", "want"),
    [
        ("0 0 * * *", 2.5, 2),
        # A window ends only after its last moment.
        ("0 0 * * *", 2, 1),
        # 1970 began on a Thursday.
        ("0 0 * * 1", 14, 11),
        ("@monthly", 40, 31),
        # A day that never comes.
        ("0 0 31 2 *", 40, -math.inf),
    ],
)
def test_a_window_begins_at_the_last_reset(expression: str, now: float, want: float) -> None:
    assert UsageRules(resets=parse_schedule(expression)).window_start(now * DAY) == want * DAY


def read(**params: Any) -> tuple[Any, list[str]]:
    problems = Problems()
    found = read_kai({"usageDBConfig": {"usageParams": params}}, problems)
    return found.usage, [str(one) for one in problems.found]


def test_parameters_are_read() -> None:
    params, problems = read(halfLifePeriod="2d", windowSize="1w", windowType="tumbling")
    assert not problems
    rules = live_kai_options(KaiConfiguration((), {}, usage=params)).usage
    assert rules == UsageRules(half_life=2 * DAY, window=7 * DAY, is_fixed=True)
    assert live_kai_options(KaiConfiguration((), {})).usage is None


def rules_of(**params: Any) -> UsageRules | None:
    found, problems = read(**params)
    assert not problems
    return live_kai_options(KaiConfiguration((), {}, usage=found)).usage


def test_where_windows_begin_is_read() -> None:
    day = "1970-01-03T00:00:00Z"
    assert rules_of(windowType="tumbling", tumblingWindowStartTime=day) == UsageRules(
        is_fixed=True, start=2 * DAY
    )
    assert rules_of(windowType="cron", cronString="0 0 * * 1") == UsageRules(
        resets=parse_schedule("0 0 * * 1")
    )
    assert rules_of(halfLifePeriod="0s") == UsageRules()


def test_wrong_parameters_are_mistakes_with_their_paths() -> None:
    _, problems = read(
        halfLifePeriod="-1s",
        windowSize="0s",
        windowType="hourly",
        cronString="0 0 * * 9",
        tumblingWindowStartTime="monday",
        halfLife="2d",
    )
    for name in (
        "halfLifePeriod",
        "windowSize",
        "windowType",
        "cronString",
        "tumblingWindowStartTime",
        "halfLife",
    ):
        assert any(f"usageDBConfig.usageParams.{name}" in one for one in problems)


def test_a_window_by_cron_needs_an_expression() -> None:
    _, problems = read(windowType="cron")
    assert any("usageDBConfig.usageParams.cronString" in one for one in problems)
