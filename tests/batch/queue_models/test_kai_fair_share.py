"""Fair shares of KAI-Scheduler's queues: one rule a row, and what holds for every division."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from stowplan.batch.queue_models.kai import fair_share
from stowplan.batch.queue_models.kai.fair_share import UNLIMITED, KaiQueueShares, KaiShare, divide
from stowplan.conformance.evaluate import compat_for

GPU = "gpu"
Row = dict[str, Any]


def queue(name: str, request: float, **row: Any) -> KaiQueueShares:
    """A queue that asks for cards. row: quota, limit, weight, usage, parent, priority, created."""
    share = KaiShare(
        row.get("quota", 0.0),
        row.get("limit", UNLIMITED),
        row.get("weight", 1.0),
        request,
        row.get("usage", 0.0),
    )
    priority = row.get("priority", 100)
    return KaiQueueShares(
        name, row.get("parent", ""), priority, row.get("created", 0.0), {GPU: share}
    )


def fair_of(total: float, queues: Sequence[KaiQueueShares], k: float = 1.0) -> dict[str, float]:
    divide({GPU: total}, queues, k)
    return {one.name: one.shares[GPU].fair for one in queues}


@pytest.mark.parametrize(
    ("total", "queues", "want"),
    [
        pytest.param(10, [queue("a", 9, quota=2), queue("b", 9, quota=4)], [4, 6], id="quota"),
        pytest.param(4, [queue("a", 9, quota=3), queue("b", 9, quota=3)], [3, 3], id="too-much"),
        pytest.param(9, [queue("a", 9, weight=2), queue("b", 9)], [6, 3], id="weight"),
        pytest.param(9, [queue("a", 9, weight=0), queue("b", 2)], [0, 2], id="weight-0"),
        pytest.param(9, [queue("a", 9), queue("b", 1)], [8, 1], id="satisfied"),
        pytest.param(9, [queue("a", 9), queue("b", 9, limit=2)], [7, 2], id="limit"),
        pytest.param(
            6, [queue("a", 9, quota=UNLIMITED), queue("b", 9)], [6, 0], id="unlimited-quota"
        ),
        pytest.param(5, [queue("a", 4), queue("b", 9, priority=200)], [0, 5], id="priority"),
        pytest.param(5, [queue("a", 9, created=2), queue("b", 9, created=1)], [2, 3], id="older"),
        pytest.param(5, [queue("b", 9), queue("a", 9)], [2, 3], id="name"),
        pytest.param(8, [queue("a", 9, usage=0.5), queue("b", 9)], [3, 5], id="usage"),
    ],
)
def test_a_level_is_divided(total: float, queues: list[KaiQueueShares], want: list[float]) -> None:
    assert list(fair_of(total, queues).values()) == want


def test_children_divide_what_their_parent_got() -> None:
    tree = [
        queue("left", 12, weight=3),
        queue("right", 12),
        queue("x", 6, parent="left"),
        queue("y", 6, parent="left", quota=4),
    ]
    assert fair_of(8, tree) == {"left": 6.0, "right": 2.0, "x": 1.0, "y": 5.0}


def test_usage_counts_k_times() -> None:
    queues = [[queue("a", 99, usage=0.5), queue("b", 99)] for _ in range(3)]
    assert [fair_of(80, queues[i], k)["a"] for i, k in enumerate((-1.0, 0.5, 1.0))] == [40, 32, 27]


def test_queues_off_the_tree_are_refused() -> None:
    with pytest.raises(ValueError, match="queue a: parent: got 'none', which no top queue leads"):
        divide({GPU: 1.0}, [queue("a", 1, parent="none")])


def random_level(seed: int) -> tuple[float, list[KaiQueueShares]]:
    rng = random.Random(seed)
    queues = [
        queue(
            f"q{i}",
            rng.choice([0, 1, 2.5, 4, 9]),
            quota=rng.choice([0, 0, 1, 2.5, UNLIMITED]),
            limit=rng.choice([UNLIMITED, UNLIMITED, 3, 0.5]),
            weight=rng.choice([0, 1, 1, 2.5]),
            usage=rng.choice([0, 0, 0.3]),
            priority=rng.choice([100, 100, 200]),
        )
        for i in range(rng.randint(1, 7))
    ]
    return rng.choice([0.0, 1.5, 4.0, 10.0, 30.0]), queues


def check_division(seed: int) -> None:
    """Every quota is given; beyond quotas, no more is given than there is, and to none a whole
    unit more than it may have."""
    total, queues = random_level(seed)
    divide({GPU: total}, queues)
    given = 0.0
    for one in queues:
        share = one.shares[GPU]
        quota = min(total if share.quota == UNLIMITED else share.quota, share.requestable)
        assert quota <= share.fair < share.requestable + 1 or share.fair == quota == 0
        given += quota
    divided = math.fsum(one.shares[GPU].fair for one in queues)
    assert divided <= max(total, given) + 1e-9
    shares = [one.shares[GPU] for one in queues]
    if divided < total - 1e-9 and not any(share.usage for share in shares):
        # Something is left only where none that has a weight may have more.
        assert all(share.fair >= share.requestable for share in shares if share.weight)


def check_divisions(seeds: range) -> None:
    for seed in seeds:
        check_division(seed)


def test_no_more_is_divided_than_there_is() -> None:
    check_divisions(range(200))


def test_rests_that_are_given_twice_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_to_all(left: float, rests: list[tuple[float, float, str, KaiShare]]) -> float:
        for *_, share in rests:
            share.fair += 1.0
        return left

    monkeypatch.setattr(fair_share, "_divide_rests", give_to_all)
    with pytest.raises(AssertionError):
        check_divisions(range(200))


def test_a_division_that_leaves_something_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fair_share, "_divide_rests", lambda left, _: left)
    with pytest.raises(AssertionError):
        check_divisions(range(200))


# Queues without siblings, or alone in their priority, are divided to without rounds of several.


def random_tree(seed: int) -> tuple[float, float, list[KaiQueueShares]]:
    rng = random.Random(seed)
    queues: list[KaiQueueShares] = []
    for i in range(rng.randint(1, 12)):
        parent = rng.choice([None, *queues, *queues[-1:], *queues[-1:]])
        queues.append(
            queue(
                f"q{i}",
                rng.choice([0, 0.5, 1, 2.5, 4, 9]),
                quota=rng.choice([0, 0, 1, 2.5, UNLIMITED]),
                limit=rng.choice([UNLIMITED, UNLIMITED, 3, 0.5]),
                weight=rng.choice([0, 1, 1, 2.5]),
                usage=rng.choice([0, 0, 0.3, 1.5, 2.5]),
                priority=rng.choice([i, i, 100]),
            )
        )
        queues[-1].parent = parent.name if parent else ""
    return rng.choice([0.0, 1.5, 4.0, 10.0]), rng.choice([0.0, 1.0, 3.0]), queues


def fairs(seed: int) -> list[float]:
    total, k, queues = random_tree(seed)
    divide({GPU: total}, queues, k)
    return [one.shares[GPU].fair for one in queues]


def with_a_ghost(total: float, share: KaiShare, k: float) -> None:
    """Beside a queue that wants nothing."""
    level = [KaiQueueShares(name, "", 0, 0.0, {GPU: one}) for name, one in
             (("own", share), ("ghost", KaiShare(0.0, UNLIMITED, 0.0, 0.0)))]  # fmt: skip
    fair_share._divide_level(total, level, GPU, k)


def check_alone(seeds: range) -> None:
    for seed in seeds:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fair_share, "_divide_alone", with_a_ghost)
            patch.setattr(fair_share, "_divide_to_one", fair_share._divide_by_weight)
            plain = fairs(seed)
        assert fairs(seed) == plain, seed


def test_a_queue_alone_gets_what_it_gets_beside_others_that_want_nothing() -> None:
    check_alone(range(300))


def test_a_queue_alone_that_gets_something_whatever_its_weight_and_usage_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fair_share, "_has_part", lambda *_: True)
    with pytest.raises(AssertionError):
        check_alone(range(300))


@pytest.mark.parametrize("names", [("kai", "volcano-1.15"), ("volcano-1.15", "kai")])
def test_a_compat_concerns_the_cases_of_its_scheduler(names: tuple[str, str]) -> None:
    assert compat_for("queues", names) == "volcano-1.15"
    assert compat_for("queues", names[:1]) == names[0]
