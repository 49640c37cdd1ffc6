"""validate(): it keeps quiet on a sound table and names what was corrupted in another."""

from collections.abc import Callable

import numpy as np
import pytest

from stowplan.columns import NodeTable
from stowplan.columns.invariants import InvariantBroken, validate
from stowplan.testing import draw, node, pod


def sound() -> NodeTable:
    table = draw("""
        node  cpu  zone  labels    taints          images     features  nvidia.com/gpu
        n1    4    a     disk=ssd  gpu:NoSchedule  nginx=10M  Swap      1
        n2    2    b     -         -               nginx=10M  -         -

        pod  on  cpu   ports  nvidia.com/gpu
        a    n1  100m  80     1
        b    n2  -     -      -
    """).table
    table.labels.column("disk")
    for row in range(table.n_nodes):
        table.info(row)
    return table


def test_a_sound_table_passes() -> None:
    validate(sound())
    validate(NodeTable())


def test_a_table_passes_before_it_is_refreshed() -> None:
    table = sound()
    table.add_node(node("n3"))
    table.add_pod(pod("c", on="n3"))
    table.add_pod(pod("d"), "n3")
    validate(table)


CORRUPTIONS: list[tuple[str, Callable[[NodeTable], object]]] = [
    ("allocatable cpu", lambda t: np.put(t.allocatable("cpu"), 0, 1)),
    ("allocatable nvidia.com/gpu", lambda t: np.put(t.allocatable("nvidia.com/gpu"), 1, 7)),
    ("requested cpu", lambda t: np.put(t.requested("cpu"), 1, -1)),
    ("nonzero cpu", lambda t: np.put(t.nonzero_requested("cpu"), 0, 0)),
    ("nonzero memory", lambda t: np.put(t.nonzero_requested("memory"), 1, 1)),
    ("pod count", lambda t: np.put(t.pod_count, 0, 2)),
    ("unschedulable", lambda t: np.put(t.unschedulable, 1, True)),
    ("taints of 'n1'", lambda t: t.taints.write(0, ())),
    ("features of 'n2'", lambda t: t.features.write(1, ("Swap",))),
    ("label 'disk' of 'n2'", lambda t: t.labels.column("disk").write(1, "ssd")),
    ("ports of 'n2'", lambda t: t.ports.add(1, [("0.0.0.0", "TCP", 80)])),
    ("conflicts with port", lambda t: t.ports._rows["TCP", 80]["0.0.0.0"].add(1)),
    ("images of 'n1'", lambda t: t.images.clear(0)),
    ("image 'nginx' on row 1", lambda t: t.images._names.pop(1)),
    ("node 'n1' stands on row 0", lambda t: t._row_of.update(n1=1)),
    ("pod default/a stands on row 0", lambda t: t._home.update({"default/a": "n2"})),
    ("order is no permutation", lambda t: np.put(t.order, 0, 1)),
    ("rank is not the place", lambda t: np.put(t.rank, 0, 1)),
    ("the scalar view of 'n1' is out of date", lambda t: t.info(0).pods.pop()),
    ("requested cpu", lambda t: t.pods[0].pop()),
    ("default/a is added twice", lambda t: t.pods[1].append(t.pods[0][0])),
]
"""What validate says -> a table that has gone wrong in just that."""


@pytest.mark.parametrize(("named", "corrupt"), CORRUPTIONS)
def test_a_corruption_is_named(named: str, corrupt: Callable[[NodeTable], object]) -> None:
    table = sound()
    corrupt(table)
    with pytest.raises(InvariantBroken, match=named):
        validate(table)
