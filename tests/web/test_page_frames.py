"""Frames of the page, and nodes as frames."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.columns.nodetable import NodeTable
from stowplan.objects.node import NodeCondition
from stowplan.testing.builders import node, pod
from stowplan.web.model.changed_nodes import node_changes
from stowplan.web.model.followed_table import FollowedTable
from stowplan.web.model.node_columns import (
    CORDONED,
    NOT_READY,
    TAINTED,
    ZONE,
    NodeView,
    copy_columns,
    flags_of,
    is_same_view,
    snapshot_body,
    update_body,
    view_of,
)
from stowplan.web.model.page_frames import (
    FrameBody,
    FrameHeader,
    FrameKind,
    Topic,
    encode_frame,
)
from tests.web.frame_client import FrameClient, FrameError, decode_frame

GI = 2**30


def header(kind: FrameKind = FrameKind.SNAPSHOT, sequence: int = 1) -> FrameHeader:
    return FrameHeader(Topic.NODES, kind, 7, sequence, 1764000000123.5)


def viewed(table: NodeTable, last: NodeView | None = None) -> NodeView:
    columns = copy_columns(table, None)
    assert columns is not None
    return view_of(columns, last)


def test_the_layout_is_that_of_the_document() -> None:
    arrays = {"a": np.array([1, 70_000]), "b": np.array([0.5])}
    data = encode_frame(header(), FrameBody({"x": 1}, arrays))
    text = (
        b'{"x":1,"arrays":[{"name":"a","type":"u32","length":2},'
        b'{"name":"b","type":"f64","length":1}]}'
    )
    head = struct.pack("<BBBBIIIdII", 1, 2, 0, 0, 7, 1, len(text), 1764000000123.5, 2, 0)
    padding = b"\0" * (-len(text) % 8)
    values = struct.pack("<II", 1, 70_000) + struct.pack("<d", 0.5)
    assert data == head + text + padding + values


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([], "u8"),
        ([0, 255], "u8"),
        ([0, 256], "u16"),
        ([65_536], "u32"),
        ([-1, 5], "i32"),
        ([2**32], "f64"),
        ([-(2**31) - 1], "f64"),
        ([1.5], "f64"),
        ([3.0], "u8"),
    ],
)
def test_arrays_get_the_smallest_type(values: list[float], kind: str) -> None:
    body = FrameBody({}, {"a": np.array(values, dtype=np.float64)})
    data = encode_frame(header(), body)
    assert f'"type":"{kind}"'.encode() in data
    assert decode_frame(data)[1].arrays["a"].tolist() == values


@given(
    arrays=st.dictionaries(
        st.text(max_size=8), st.lists(st.integers(-(2**53), 2**53), max_size=9), max_size=4
    )
)
def test_frames_round_trip(arrays: dict[str, list[int]]) -> None:
    body = FrameBody({"names": ["ä", "<b>"]}, {k: np.array(v, int) for k, v in arrays.items()})
    data = encode_frame(header(), body)
    assert len(data) % 8 == 0
    found, content = decode_frame(data)
    assert found == header()
    assert content.tree == {"names": ["ä", "<b>"]}
    assert {name: values.tolist() for name, values in content.arrays.items()} == arrays


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (b"", "0 bytes"),
        (b"\2" + b"\0" * 40, "layout 2"),
        (b"\1\2\0\0" + b"\0" * 36, "frame:"),
    ],
)
def test_what_is_no_frame_is_an_error(data: bytes, text: str) -> None:
    with pytest.raises(FrameError, match=text):
        decode_frame(data)


def test_a_frame_cut_in_an_array_is_an_error() -> None:
    data = encode_frame(header(), FrameBody({}, {"a": np.arange(50)}))
    with pytest.raises(FrameError, match="ends after the frame"):
        decode_frame(data[:-24])


def test_nodes_have_amounts_flags_zones_and_cards() -> None:
    table = NodeTable()
    table.add_node(node("n0", cpu="4", zone="b", resources={"nvidia.com/gpu": "2"}))
    table.add_node(node("n1", cpu="8", taints=["gpu=yes:NoSchedule"], cordoned=True))
    table.add_pod(pod("p", on="n0", cpu="1500m", resources={"nvidia.com/gpu": "1"}))
    body = snapshot_body(viewed(table))
    arrays = {name: values.tolist() for name, values in body.arrays.items()}
    assert body.tree["names"] == ["n0", "n1"]
    assert {"name": "cpu", "unit": "milli"} in body.tree["resources"]
    assert arrays["allocatable:cpu"] == [4000, 8000]
    assert arrays["requested:cpu"] == [1500, 0]
    assert arrays["requested:pods"] == [1, 0]
    assert arrays["allocatable:memory"] == [16 * GI, 16 * GI]
    assert arrays["flags"] == [0, CORDONED | TAINTED]
    assert body.tree["groups"] == {ZONE: ["", "b"]}
    assert arrays[f"group:{ZONE}"] == [1, 0]
    assert arrays["cards"] == [2, 0]
    assert arrays["cardUsed"] == [1000, 0]


def test_shared_cards_are_those_of_the_ledger() -> None:
    table = NodeTable()
    table.add_node(node("n0"))
    offered = {"alibabacloud.com/gpu-count": "2", "alibabacloud.com/gpu-milli": "2000"}
    table.add_node(node("n1", resources=offered))
    half = pod("p", on="n1")
    keys = ("gpu-milli", "gpu-count", "gpu-index")
    notes = dict(zip((f"alibabacloud.com/{key}" for key in keys), ("300", "1", "1"), strict=True))
    table.add_pod(replace(half, metadata=replace(half.metadata, annotations=notes)))
    columns = copy_columns(table, None, shares_cards=True)
    assert columns is not None
    arrays = snapshot_body(view_of(columns, None)).arrays
    assert arrays["cards"].tolist() == [0, 2]
    assert arrays["cardUsed"].tolist() == [0, 300]


def test_own_taints_of_a_state_are_that_state_only() -> None:
    cordoned = node("n", cordoned=True, taints=["node.kubernetes.io/unschedulable:NoSchedule"])
    assert flags_of(cordoned) == CORDONED
    status = replace(cordoned.status, conditions=(NodeCondition("Ready", "Unknown"),))
    assert flags_of(replace(cordoned, status=status)) == CORDONED | NOT_READY


def test_a_copy_is_made_only_of_what_has_changed() -> None:
    table = NodeTable()
    table.add_node(node("n0"))
    first = copy_columns(table, None)
    assert first is not None
    assert copy_columns(table, first) is None
    table.add_pod(pod("p", on="n0", cpu="1"))
    second = copy_columns(table, first)
    assert second is not None
    # The first copy is no view of the table.
    assert first.requested[first.resources.index("cpu")].tolist() == [0]
    assert second.requested[second.resources.index("cpu")].tolist() == [1000]


steps = st.lists(
    st.tuples(st.sampled_from(["add", "remove", "cordon", "node", "zone"]), st.integers(0, 5)),
    max_size=25,
)


def changed(table: NodeTable, step: tuple[str, int], number: int) -> None:
    """One change of a table of six nodes."""
    what, which = step
    name = f"n{which}"
    match what:
        case "add":
            table.add_pod(pod(f"p{number}", uid=f"u{number}", on=name, cpu="100m"))
        case "remove":
            for info in table.pods[table.row(name)][:1]:
                table.remove_pod(info.uid)
        case "cordon":
            before = table.nodes[table.row(name)]
            spec = replace(before.spec, unschedulable=not before.spec.unschedulable)
            table.update_node(replace(before, spec=spec))
        case "zone":
            zone = f"zone-{number % 3}"
            before = table.nodes[table.row(name)]
            labels = dict(before.labels) | {ZONE: zone}
            table.update_node(replace(before, metadata=replace(before.metadata, labels=labels)))
        case "node":
            table.add_node(node(f"more-{number}", cpu="2"))


def frames_of(changes: list[tuple[str, int]], *, forgets_rows: bool = False) -> FrameClient:
    """A client that has received a frame for each change, and whether it has the last state."""
    table = NodeTable()
    for place in range(6):
        table.add_node(node(f"n{place}", zone=f"zone-{place % 2}"))
    view = viewed(table)
    client = FrameClient()
    client.take(encode_frame(header(), snapshot_body(view)))
    for number, step in enumerate(changes):
        changed(table, step, number)
        after = viewed(table, view)
        body = update_body(view, after)
        kind = FrameKind.SNAPSHOT if body is None else FrameKind.UPDATE
        body = body or snapshot_body(after)
        if forgets_rows and kind is FrameKind.UPDATE:
            # A wrong variant: the last changed row is left out.
            body = FrameBody(body.tree, {name: one[:-1] for name, one in body.arrays.items()})
        client.take(encode_frame(header(kind, number + 2), body))
        view = after
    fresh = FrameClient()
    fresh.take(encode_frame(header(), snapshot_body(viewed(table))))
    client.is_right = client.state == fresh.state
    return client


@given(changes=steps)
def test_updates_give_the_state_of_a_snapshot(changes: list[tuple[str, int]]) -> None:
    assert frames_of(changes).is_right


def test_a_wrong_update_is_seen() -> None:
    assert not frames_of([("add", 1)], forgets_rows=True).is_right


def test_a_heartbeat_is_no_difference() -> None:
    table = NodeTable()
    table.add_node(node("n0"))
    before = viewed(table)
    table.update_node(node("n0"))
    assert is_same_view(before, viewed(table, before))
    table.update_node(node("n0", cordoned=True))
    assert not is_same_view(before, viewed(table, before))


def test_changes_of_nodes_in_words() -> None:
    table = NodeTable()
    for name in ("n0", "n1", "n2"):
        table.add_node(node(name))
    before = viewed(table)
    table.update_node(node("n0", cordoned=True))
    table.remove_node("n1")
    table.add_node(node("n3"))
    found = node_changes(before, viewed(table, before), 5.0)
    texts = {(one["name"], one["text"]) for one in found}
    assert texts == {("n0", "cordoned"), ("n1", "removed"), ("n3", "added")}


def test_a_followed_table_costs_what_differs() -> None:
    nodes = [node(f"n{place}") for place in range(3)]
    pods = [pod(f"p{place}", uid=f"u{place}", on="n0", cpu="1") for place in range(4)]
    followed = FollowedTable()
    table = followed.follow(nodes, [*pods, pod("waits", cpu="1")])
    assert followed.n_changed == 7
    assert table.requested("cpu").tolist() == [4000, 0, 0]
    moved = pod("p1", uid="u1", on="n2", cpu="2")
    followed.follow([nodes[0], nodes[2]], [pods[0], moved, pods[2]])
    # A node and a pod have gone, and a pod has moved.
    assert followed.n_changed == 4
    fresh = FollowedTable().follow([nodes[0], nodes[2]], [pods[0], moved, pods[2]])
    for name in ("n0", "n2"):
        row, other = table.row(name), fresh.row(name)
        assert table.requested("cpu")[row] == fresh.requested("cpu")[other]
    followed.follow([nodes[0], nodes[2]], [pods[0], moved, pods[2]])
    assert followed.n_changed == 0
