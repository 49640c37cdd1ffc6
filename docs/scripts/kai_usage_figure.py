"""Simulates a month of three queues whose fair shares depend on their usage over time, and draws
the figure of docs/kai-queues.md.

    python docs/scripts/kai_usage_figure.py
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from stowplan.benchmarks.sessions.kai_benchmarks import FREE, KaiBenchmark
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.kai.kai_kinds import KaiQueueResource, KaiQueueResources
from stowplan.web.charts import Axis, LineChart, Series

N_NODES, N_CARDS = 3, 24
DAYS, STEP_HOURS = 30, 4
HALF_LIFE_DAYS, WINDOW_DAYS = 2, 7
BEGINS = {"red": 0, "blue": 6, "green": 12}
"""Queue -> the day from which it has more jobs than there are cards."""
CONFIGURATION = f"""
scheduler: kai
usageDBConfig:
  usageParams: {{halfLifePeriod: {HALF_LIFE_DAYS}d, windowSize: {WINDOW_DAYS}d}}
"""

Shares = list[dict[str, float]]
"""By step: queue -> its part of the cards."""


class Month(KaiBenchmark):
    """24 cards, and jobs of one card that run for a step."""

    configuration = CONFIGURATION

    def __init__(self) -> None:
        super().__init__(N_NODES, N_CARDS // N_NODES)
        cards = KaiQueueResources(FREE, FREE, KaiQueueResource(0.0, -1, 1.0))
        self.show([self.queue(name, resources=cards) for name in BEGINS])
        self.show([happened.Synced()])
        self._numbers = count()

    def step(self, hour: float) -> dict[str, float]:
        """All jobs have ended, new ones are there, and a session starts what may run."""
        self.now = round(hour * 3600) * SECOND
        events: list[Event] = [happened.PodDeleted(pod) for pod in self.pods.values()]
        self.pods.clear()
        for name, begin in BEGINS.items():
            if hour >= 24 * begin:
                events += self._jobs(name)
        self.session(*events)
        self.settle()
        placed = [pod for pod in self.pods.values() if pod.node_name]
        return {name: sum(pod.name.startswith(name) for pod in placed) / N_CARDS for name in BEGINS}

    def _jobs(self, queue: str) -> Iterator[Event]:
        for _ in range(N_CARDS):
            yield from self.gang(f"{queue}{next(self._numbers)}", queue, 1, ("100m", "1Mi", "1"))


def simulated(days: int = DAYS) -> Shares:
    """What queues had in each step, as sessions decide."""
    month = Month()
    return [month.step(number * STEP_HOURS) for number in range(24 * days // STEP_HOURS)]


def expected(days: int = DAYS) -> Shares:
    """What they have by the formula: the weight of a queue is n + k * (n - usage), with k = 1."""
    found: Shares = []
    for number in range(24 * days // STEP_HOURS):
        hour = number * STEP_HOURS
        names = [name for name, begin in BEGINS.items() if hour >= 24 * begin]
        used = _usage(found)
        weights = {name: max(0.0, 2 / len(names) - used.get(name, 0.0)) for name in names}
        total = sum(weights.values())
        found.append({name: weights.get(name, 0.0) / total for name in BEGINS})
    return found


def _usage(shares: Shares) -> dict[str, float]:
    """The part that queues had, by the age of each step."""
    last = shares[-24 * WINDOW_DAYS // STEP_HOURS :]
    ages = range(len(last) - 1, -1, -1)
    counts = [0.5 ** (age * STEP_HOURS / 24 / HALF_LIFE_DAYS) for age in ages]
    if not counts:
        return {}
    return {
        name: sum(part * one[name] for part, one in zip(counts, last, strict=True)) / sum(counts)
        for name in BEGINS
    }


def by_day(shares: Shares) -> Shares:
    """Means of days."""
    size = 24 // STEP_HOURS
    return [
        {name: sum(one[name] for one in shares[i : i + size]) / size for name in BEGINS}
        for i in range(0, len(shares), size)
    ]


def main() -> None:
    """Draw the figure."""
    path = Path(__file__).with_name("gallery_figures.py")
    spec = importlib.util.spec_from_file_location("gallery_figures", path)
    assert spec is not None
    assert spec.loader is not None
    figures = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(figures)
    decided, formula = by_day(simulated()), by_day(expected())
    days = [float(day) for day in range(1, DAYS + 1)]
    lines = [
        Series(f"{name}{note}", days, [100 * day[name] for day in of], colour=i, is_reference=ideal)
        for of, note, ideal in ((formula, " by the formula", True), (decided, "", False))
        for i, name in enumerate(BEGINS)
    ]
    axis = Axis("part of the cards", "percent", low=0, high=100)
    chart = LineChart("Cards of three queues in a month", Axis("day"), axis, lines)
    (figures.IMAGES / "kai-usage.svg").write_text(figures.standalone(chart), encoding="utf-8")


if __name__ == "__main__":
    main()
