"""PrioritySort: the order, and that the key sorts the same way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.framework import QueuedPod
from stowplan.plugins.priority_sort import PrioritySort
from tests.plugins.clusters import is_found, pod

RULE = PrioritySort()


def queued(priority: int | None, added_at: float) -> QueuedPod:
    return QueuedPod(pod(priority=priority) if priority is not None else pod(), added_at)


@pytest.mark.parametrize(
    ("first", "second", "less"),
    [
        (queued(10, 5.0), queued(0, 1.0), True),
        (queued(0, 1.0), queued(10, 5.0), False),
        (queued(7, 1.0), queued(7, 2.0), True),
        (queued(7, 2.0), queued(7, 1.0), False),
        (queued(7, 2.0), queued(7, 2.0), False),
        # No priority counts as 0.
        (queued(None, 1.0), queued(0, 2.0), True),
        (queued(None, 0.0), queued(-1, 0.0), True),
    ],
)
def test_order(first: QueuedPod, second: QueuedPod, less: bool) -> None:
    assert RULE.less(first, second) is less


class Lenient(PrioritySort):
    """Wrong: among equals, each goes before the other."""

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        return self.sort_key(first) <= self.sort_key(second)


pairs = st.tuples(*[st.builds(queued, st.integers(-2, 2), st.sampled_from((0.0, 1.0)))] * 2)


def is_strict(rule: PrioritySort, pair: tuple[QueuedPod, QueuedPod]) -> bool:
    return not (rule.less(*pair) and rule.less(*reversed(pair)))


@given(pairs)
def test_the_order_is_strict(pair: tuple[QueuedPod, QueuedPod]) -> None:
    assert is_strict(RULE, pair)


def test_a_lenient_order_is_caught() -> None:
    assert is_found(
        pairs,
        lambda pair: not is_strict(Lenient(), pair),
    )
