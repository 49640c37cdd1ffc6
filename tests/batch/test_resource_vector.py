"""Resource arithmetic of sessions, and of the original by the tables of its unit tests."""

from __future__ import annotations

import pytest

from stowplan.batch.state import task_requests as today
from stowplan.batch.state.task_requests import task_request_of
from stowplan.framework.deciders.resource_vector import ResourceVector, parse_resources, share_of
from stowplan.kube_batch_v05 import amounts as original
from stowplan.kube_batch_v05.amounts import KubeBatchPanic, request_of
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Container, Pod, PodSpec, ResourceRequirements

GIB = 1024.0**3


def test_a_resource_list_is_parsed() -> None:
    amount = parse_resources(
        {"cpu": "4m", "memory": 2000, "example.com/a": 1, "hugepages-2Mi": 2, "x": 3}
    )
    assert (amount.cpu, amount.memory) == (4.0, 2000.0)
    assert amount.scalars == {"example.com/a": 1000.0, "hugepages-2Mi": 2000.0}


@pytest.mark.parametrize(
    ("a", "b", "fixed", "as_v0_5"),
    [
        (ResourceVector(), ResourceVector(), True, True),
        (ResourceVector(4, 4000), ResourceVector(), False, True),
        (ResourceVector(5, 0), ResourceVector(), False, True),
        (ResourceVector(4, 4000, {"a": 1.0}), ResourceVector(4, 4000), False, False),
        (ResourceVector(4, 4000, {"a": 0.0}), ResourceVector(4, 4000), True, False),
        (ResourceVector(4, 4000), ResourceVector(8, 8000, {"a": 1.0}), True, True),
        (ResourceVector(1000, GIB), ResourceVector(991, GIB), False, True),
        (ResourceVector(1000, GIB), ResourceVector(990, GIB), False, False),
    ],
)
def test_less_or_equal(a: ResourceVector, b: ResourceVector, fixed: bool, as_v0_5: bool) -> None:
    assert today.less_equal(a, b) is fixed
    assert original.less_equal(a, b) is as_v0_5


@pytest.mark.parametrize(
    ("a", "b", "fixed", "as_v0_5"),
    [
        (ResourceVector(), ResourceVector(), False, False),
        (ResourceVector(1, 1), ResourceVector(2, 2), True, False),
        (ResourceVector(1, 1), ResourceVector(2, 2, {"a": 1.0}), True, True),
        (ResourceVector(1, 1, {"a": 1.0}), ResourceVector(2, 2, {"a": 2.0}), True, True),
        (ResourceVector(1, 1, {"a": 3.0}), ResourceVector(2, 2, {"a": 2.0}), False, False),
        (ResourceVector(1, 1, {"a": 0.0}), ResourceVector(2, 2), False, False),
    ],
)
def test_less_is_never_true_in_the_original_without_scalars(
    a: ResourceVector, b: ResourceVector, fixed: bool, as_v0_5: bool
) -> None:
    assert today.less(a, b) is fixed
    assert original.less(a, b) is as_v0_5


def test_amounts_below_epsilon_are_empty() -> None:
    nearly = ResourceVector(9, 10 * 1024 * 1024 - 1, {"a": 9.0})
    assert original.is_empty(nearly)
    assert not today.is_empty(nearly)
    assert today.is_empty(ResourceVector(0, 0, {"a": 0.0}))


def test_subtracting_too_much_panics_in_the_original() -> None:
    with pytest.raises(KubeBatchPanic, match="Resource is not sufficient to do operation"):
        original.subtract(ResourceVector(1000, GIB), ResourceVector(2000, GIB))
    assert today.subtract(ResourceVector(1000, GIB), ResourceVector(2000, GIB)).cpu == -1000


def test_running_requests_are_of_containers_and_launch_requests_include_init_containers() -> None:
    def asking(cpu: str, memory: str) -> Container:
        return Container(resources=ResourceRequirements(requests={"cpu": cpu, "memory": memory}))

    spec = PodSpec(
        containers=(asking("1", "1G"), asking("2", "1G")),
        init_containers=(asking("2", "5G"), asking("2", "1G")),
    )
    pod = Pod(metadata=ObjectMeta(name="p"), spec=spec)
    ask = request_of(pod)
    assert (ask.running.cpu, ask.running.memory) == (3000, 2e9)
    assert (ask.launching.cpu, ask.launching.memory) == (3000, 5e9)
    now = task_request_of(pod)
    assert (now.running.cpu, now.running.memory) == (3000, 5e9)


def test_the_share_of_an_empty_whole_is_one() -> None:
    assert (share_of(0, 0), share_of(1, 0), share_of(1, 4)) == (0.0, 1.0, 0.25)
