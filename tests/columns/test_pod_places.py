"""PodPlaces: pods are found in long lists by places that are checked."""

from __future__ import annotations

import numpy as np

from stowplan.columns.nodetable import NodeTable
from stowplan.columns.pods import pod_places
from stowplan.columns.pods.pod_places import PodPlaces
from stowplan.columns.pods.podinfo import PodInfo
from stowplan.testing import builders


def test_pods_of_a_long_row_leave_in_any_order() -> None:
    table, rng = NodeTable(), np.random.default_rng(1)
    table.add_node(builders.node("n1"))
    names: list[str] = []
    for step in range(3 * pod_places.LONG):
        if names and len(names) > pod_places.LONG and rng.integers(2):
            gone = names.pop(int(rng.integers(len(names))))
            assert table.remove_pod(gone).uid == gone
        name = f"p{step}"
        names.append(name)
        table.add_pod(builders.pod(name, uid=name, on="n1"))
    assert sorted(info.uid for info in table.pods[0]) == sorted(names)


def test_a_place_that_is_out_of_date_is_looked_up_again() -> None:
    pods = [PodInfo.of(builders.pod(f"p{i}", uid=f"p{i}")) for i in range(pod_places.LONG)]
    places = PodPlaces()
    assert places.find(0, pods, "p3") == 3
    pods[3], pods[4] = pods[4], pods[3]
    assert places.find(0, pods, "p3") == 4
    places.moved(0, "p7", 9)
    assert places.find(0, pods, "p7") == 7
    assert places.find(0, pods, "missing") == -1
    assert places.find(0, pods[:2], "p1") == 1
