"""Short ways of Volcano's amounts: the same answers as the long ones that they stand for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.batch.queue_models.volcano.volcano_amount import VolcanoAmount, total_of
from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.batch.queue_models.volcano.volcano_session_job import sum_of_requests
from stowplan.objects.node import Node
from tests.property.wrong import assert_caught
from tests.soak import examples

FIGURES = st.sampled_from((0.0, 0.05, 1.0, 2.0, 3.0))
SCALARS = st.none() | st.dictionaries(st.sampled_from(("pods", "gpu", "disk")), FIGURES)
AMOUNTS = st.builds(VolcanoAmount, FIGURES, FIGURES, SCALARS)
# Of pods: whole numbers of their units.
WHOLE = st.sampled_from((0.0, 1.0, 100.0, 1500.0, 2.0**33))
REQUESTS = st.builds(
    VolcanoAmount, WHOLE, WHOLE, st.dictionaries(st.sampled_from(("pods", "gpu", "disk")), WHOLE)
)
THREE = st.tuples(AMOUNTS, AMOUNTS, AMOUNTS)
Three = tuple[VolcanoAmount, VolcanoAmount, VolcanoAmount]


@settings(max_examples=examples(100))
@given(THREE)
def test_room_for_a_request(three: Three) -> None:
    has, limit, request = three
    assert has.leaves_room(limit, request) == (
        not has.copy().add(request).exceeded_names(limit, request)
    )


def node_with(idle: VolcanoAmount, releasing: VolcanoAmount, pipelined: VolcanoAmount) -> Any:
    made = VolcanoNode(Node(), 0)
    made.idle, made.releasing, made.pipelined = idle, releasing, pipelined
    return made


def check_later(three: Three, has_later: Any) -> None:
    for pipelined in (VolcanoAmount(), three[0]):
        made = node_with(three[0], three[1], pipelined)
        assert has_later(made, three[2]) == three[2].fits(made.future_idle())


@settings(max_examples=examples(100))
@given(THREE)
def test_room_that_there_will_be(three: Three) -> None:
    check_later(three, VolcanoNode.has_later)


def test_control_room_without_what_is_released_is_noticed() -> None:
    def idle_alone(node: VolcanoNode, request: VolcanoAmount) -> bool:
        return request.fits(node.idle)

    assert_caught(lambda three: check_later(three, idle_alone), THREE)


@settings(max_examples=examples(100))
@given(st.lists(REQUESTS, max_size=4), st.data())
def test_sums_of_requests_that_tasks_share(
    shared: list[VolcanoAmount], data: st.DataObject
) -> None:
    requests = data.draw(st.lists(st.sampled_from(shared), max_size=9)) if shared else []
    tasks: list[Any] = [SimpleNamespace(request=request) for request in requests]
    before = [request.copy() for request in requests]
    assert sum_of_requests(tasks).equals(total_of(before))
    assert all(one.equals(copy) for one, copy in zip(requests, before, strict=True))
