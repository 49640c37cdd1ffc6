"""Deadlines compared with a simple model: a dict that is searched."""

from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.scheduler.deadlines import Deadlines
from tests.property.wrong import assert_caught
from tests.soak import examples

KEYS = st.sampled_from("abcdef")
TIMES = st.integers(0, 20)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, TIMES),
        st.tuples(st.just("clear"), KEYS, TIMES),
        st.tuples(st.just("due"), KEYS, TIMES),
    ),
    max_size=200,
)
Steps = list[tuple[str, str, int]]


def agrees(steps: Steps, kind: type[Deadlines[str]] = Deadlines) -> None:
    deadlines, model = kind(), dict[str, int]()
    for what, key, at in steps:
        if what == "set":
            deadlines.set(key, at)
            model[key] = at
        elif what == "clear":
            deadlines.clear(key)
            model.pop(key, None)
        else:
            due = sorted((when, name) for name, when in model.items() if when <= at)
            assert deadlines.due(at) == [name for _, name in due]
            for _, name in due:
                del model[name]
        assert deadlines.next() == min(model.values(), default=None)
        assert len(deadlines) == len(model)
        assert len(deadlines._heap) <= 2 * len(model) + 66


@settings(max_examples=examples(100))
@given(STEPS)
def test_deadlines_agree_with_a_dict(steps: Steps) -> None:
    agrees(steps)


class Sticky(Deadlines[str]):
    """Wrong: a deadline that is moved also stays due at its old time."""

    def next(self) -> int | None:
        return self._heap[0][0] if self._heap and self._at else None


def test_control_a_deadline_that_is_not_moved_is_noticed() -> None:
    assert_caught(lambda steps: agrees(steps, Sticky), STEPS)
