"""Due times compared with a simple model, a dict that is searched; and the backoff of retries."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.objects.timing.due_times import DueHeap, exponential_backoff
from tests.property.wrong import assert_caught
from tests.soak import examples

KEYS = st.sampled_from("abcdef")
TIMES = st.integers(0, 20)
VERBS = ("set", "clear", "due", "take")
STEPS = st.lists(
    st.one_of(*(st.tuples(st.just(verb), KEYS, TIMES) for verb in VERBS)), max_size=200
)
Steps = list[tuple[str, str, int]]


def agrees(steps: Steps, kind: type[DueHeap[str, int]] = DueHeap) -> None:
    heap, model = kind(), dict[str, tuple[int, int]]()
    for number, (what, key, at) in enumerate(steps):
        due = [name for name in sorted(model, key=model.__getitem__) if model[name][0] <= at]
        if what == "set":
            heap.set(key, at)
            model[key] = at, number
        elif what == "clear":
            heap.clear(key)
            model.pop(key, None)
        else:
            due = due if what == "due" else due[:1]
            assert (heap.due(at) if what == "due" else [heap.take(at)]) == (due or due_of(what))
            for name in due:
                del model[name]
        assert heap.next_at() == min((when for when, _ in model.values()), default=None)
        assert heap.at(key) == (model[key][0] if key in model else None)
        assert len(heap) == len(model)
        assert len(heap._heap) <= 2 * len(model) + 66


def due_of(what: str) -> list[str | None]:
    """What is returned where nothing is due."""
    return [] if what == "due" else [None]


@settings(max_examples=examples(100))
@given(STEPS)
def test_due_times_agree_with_a_dict(steps: Steps) -> None:
    agrees(steps)


class Sticky(DueHeap[str, int]):
    """Wrong: a key that is moved also stays due at its old time."""

    def next_at(self) -> int | None:
        return self._heap[0][0] if self._heap and self._live else None


def test_control_a_due_time_that_is_not_moved_is_noticed() -> None:
    assert_caught(lambda steps: agrees(steps, Sticky), STEPS)


@pytest.mark.parametrize(
    ("n_before", "wait"), [(0, 0.5), (1, 1.0), (4, 8.0), (5, 10.0), (2_000_000_000, 10.0)]
)
def test_backoff_doubles_up_to_its_limit(n_before: int, wait: float) -> None:
    assert exponential_backoff(n_before, 0.5, 10.0) == wait
