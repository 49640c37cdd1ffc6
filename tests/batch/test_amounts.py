"""Resource arithmetic, with the tables of the original's unit tests and with the switches off."""

from __future__ import annotations

import pytest

from stowplan.batch import KUBE_BATCH_0_5, Compat
from stowplan.batch.amounts import Amount, Arithmetic, SessionPanic, ask_of, parsed, share_of
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Container, Pod, PodSpec, ResourceRequirements

MENDED, AS_EVER = Arithmetic(Compat()), Arithmetic(KUBE_BATCH_0_5)
GIB = 1024.0**3


def test_a_resource_list_is_read() -> None:
    amount = parsed({"cpu": "4m", "memory": 2000, "example.com/a": 1, "hugepages-2Mi": 2, "x": 3})
    assert (amount.cpu, amount.memory) == (4.0, 2000.0)
    assert amount.scalars == {"example.com/a": 1000.0, "hugepages-2Mi": 2000.0}


@pytest.mark.parametrize(
    ("a", "b", "mended", "as_ever"),
    [
        (Amount(), Amount(), True, True),
        (Amount(4, 4000), Amount(), False, True),
        (Amount(5, 0), Amount(), False, True),
        (Amount(4, 4000, {"a": 1.0}), Amount(4, 4000), False, False),
        (Amount(4, 4000, {"a": 0.0}), Amount(4, 4000), True, False),
        (Amount(4, 4000), Amount(8, 8000, {"a": 1.0}), True, True),
        (Amount(1000, GIB), Amount(991, GIB), False, True),
        (Amount(1000, GIB), Amount(990, GIB), False, False),
    ],
)
def test_less_or_equal(a: Amount, b: Amount, mended: bool, as_ever: bool) -> None:
    assert MENDED.less_equal(a, b) is mended
    assert AS_EVER.less_equal(a, b) is as_ever


@pytest.mark.parametrize(
    ("a", "b", "mended", "as_ever"),
    [
        (Amount(), Amount(), False, False),
        (Amount(1, 1), Amount(2, 2), True, False),
        (Amount(1, 1), Amount(2, 2, {"a": 1.0}), True, True),
        (Amount(1, 1, {"a": 1.0}), Amount(2, 2, {"a": 2.0}), True, True),
        (Amount(1, 1, {"a": 3.0}), Amount(2, 2, {"a": 2.0}), False, False),
        (Amount(1, 1, {"a": 0.0}), Amount(2, 2), False, False),
    ],
)
def test_less_is_never_true_in_the_original_without_scalars(
    a: Amount, b: Amount, mended: bool, as_ever: bool
) -> None:
    assert MENDED.less(a, b) is mended
    assert AS_EVER.less(a, b) is as_ever


def test_what_is_next_to_nothing() -> None:
    nearly = Amount(9, 10 * 1024 * 1024 - 1, {"a": 9.0})
    assert AS_EVER.is_empty(nearly)
    assert not MENDED.is_empty(nearly)
    assert MENDED.is_empty(Amount(0, 0, {"a": 0.0}))


def test_taking_too_much_ends_the_original() -> None:
    with pytest.raises(SessionPanic, match="Resource is not sufficient to do operation"):
        AS_EVER.subtract(Amount(1000, GIB), Amount(2000, GIB))
    assert MENDED.subtract(Amount(1000, GIB), Amount(2000, GIB)).cpu == -1000


def test_a_pod_takes_its_containers_and_needs_its_largest_init_container() -> None:
    def asking(cpu: str, memory: str) -> Container:
        return Container(resources=ResourceRequirements(requests={"cpu": cpu, "memory": memory}))

    spec = PodSpec(
        containers=(asking("1", "1G"), asking("2", "1G")),
        init_containers=(asking("2", "5G"), asking("2", "1G")),
    )
    pod = Pod(metadata=ObjectMeta(name="p"), spec=spec)
    ask = ask_of(pod, AS_EVER, containers_only=True)
    assert (ask.running.cpu, ask.running.memory) == (3000, 2e9)
    assert (ask.launching.cpu, ask.launching.memory) == (3000, 5e9)
    today = ask_of(pod, MENDED, containers_only=False)
    assert (today.running.cpu, today.running.memory) == (3000, 5e9)


def test_something_of_nothing_is_all_of_it() -> None:
    assert (share_of(0, 0), share_of(1, 0), share_of(1, 4)) == (0.0, 1.0, 0.25)
