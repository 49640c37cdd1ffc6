"""How answers of session plugins are combined."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from stowplan.batch.state.jobs import TaskInfo
from stowplan.batch.state.queues import QueueInfo
from stowplan.batch.tiers import Hooks, SessionPluginUse
from tests.batch.batch_cluster import BatchCluster

Preemptable = Callable[[TaskInfo, Sequence[TaskInfo]], list[TaskInfo]]


def tasks(n_tasks: int) -> list[TaskInfo]:
    cluster = BatchCluster()
    cluster.gang("g", n_tasks)
    return list(cluster.inventory.jobs["ns/g"].tasks.values())


def hooks(*tiers: str) -> Hooks:
    return Hooks(tuple(tuple(SessionPluginUse(name) for name in tier.split()) for tier in tiers))


def answering(*numbers: int) -> Preemptable:
    """An opinion: of the candidates those with these numbers."""
    names = {f"g-{number}" for number in numbers}
    return lambda task, candidates: [c for c in candidates if c.pod.name in names]


@pytest.mark.parametrize(
    ("tiers", "opinions", "vetoes", "want"),
    [
        # Within a tier victims are intersected.
        (("a b",), {"a": (1, 2), "b": (2, 3)}, {}, "2"),
        # The first tier with an opinion decides, even if it selects none.
        (("a", "b"), {"a": (1,), "b": (2,)}, {}, "1"),
        (("a", "b"), {"a": (), "b": (2,)}, {}, ""),
        # A tier with vetoes only leaves the decision to the next one.
        (("a", "b"), {"b": (1, 2)}, {"a": (1, 2, 3)}, "12"),
        (("a", "b"), {"b": (1, 2)}, {"a": (2, 3)}, "2"),
        # With only vetoes all unprotected candidates may be evicted; with no function at all, none.
        (("a", "b"), {}, {"a": (1, 2), "b": (2, 3)}, "2"),
        (("a",), {}, {}, ""),
    ],
)
def test_victims(
    tiers: tuple[str, ...],
    opinions: dict[str, tuple[int, ...]],
    vetoes: dict[str, tuple[int, ...]],
    want: str,
) -> None:
    preemptor, *others = tasks(5)
    asked = hooks(*tiers)
    for name, numbers in opinions.items():
        asked.register("preemptable", name, answering(*numbers))
    for name, numbers in vetoes.items():
        asked.register("preemptable", name, answering(*numbers), veto=True)
    found = asked.victims("preemptable", preemptor, others)
    assert "".join(t.pod.name[2:] for t in found) == want


def test_the_first_nonzero_comparison_decides() -> None:
    asked = hooks("even", "size")
    asked.register("queue_order", "even", lambda a, b: a.weight % 2 - b.weight % 2)
    asked.register("queue_order", "size", lambda a, b: b.weight - a.weight)
    two, three, four = (QueueInfo(f"q{n}", n) for n in (2, 3, 4))
    assert asked.queue_less(two, three)
    assert asked.queue_less(four, two)
    assert not asked.queue_less(two, four)


def test_ties_go_to_the_older_one_then_by_name() -> None:
    asked = hooks()
    first, second = tasks(2)
    assert asked.task_less(first, second)
    assert not asked.task_less(second, first)
    assert asked.queue_less(QueueInfo("a", 1), QueueInfo("b", 1))


def test_readiness_is_a_conjunction_and_overused_a_disjunction() -> None:
    asked = hooks("a b")
    job = BatchCluster().inventory.jobs
    assert not job
    for kind, combined in (("job_ready", False), ("overused", True)):
        asked.register(kind, "a", lambda _: True)  # type: ignore[arg-type]
        asked.register(kind, "b", lambda _: False)  # type: ignore[arg-type]
        answer = asked.overused if kind == "overused" else asked.job_ready
        assert answer(QueueInfo("q", 1)) is combined  # type: ignore[arg-type]


def test_a_switch_turns_a_function_off() -> None:
    on = Hooks(((SessionPluginUse("a"),),))
    off = Hooks(((SessionPluginUse("a", frozenset({"enableJobReady"})),),))
    for asked, ready in ((on, False), (off, True)):
        asked.register("job_ready", "a", lambda _: False)
        assert asked.job_ready(None) is ready  # type: ignore[arg-type]
