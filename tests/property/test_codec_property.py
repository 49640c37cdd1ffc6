"""Objects survive the way to JSON and back, and so does what is computed from them."""

from collections.abc import Callable
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from stowplan.columns.nodeinfo import allocatable_amounts
from stowplan.columns.pods.podinfo import PodInfo
from stowplan.objects.encoding.json_codec import convert, decode, encode, untyped
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.testing.generators.scenes import GeneratedCluster
from stowplan.testing.strategies import clusters, nodes, pods
from tests.property.wrong import assert_caught

PODS_AND_NODES = pods() | pods(on="n0") | nodes()


def round_trip(value: Object, write: Callable[[Any], bytes]) -> None:
    """Decoded from JSON, and from the same JSON as a tree with nulls in it, it is the same."""
    text = write(value)
    assert decode(text, type(value)) == value
    tree = untyped(text)
    assert convert({**tree, "unheardOf": None, "status": tree.get("status")}, type(value)) == value


@given(PODS_AND_NODES)
def test_an_object_survives_the_round_trip(value: Pod | Node) -> None:
    round_trip(value, encode)


@given(clusters(n_nodes_max=1, n_pods_max=1, n_pending_max=1))
def test_the_other_objects_survive_the_round_trip(scene: GeneratedCluster) -> None:
    for value in scene.objects:
        round_trip(value, encode)


@given(pods(on="n0"))
def test_the_footprint_survives_the_round_trip(pod: Pod) -> None:
    again = decode(encode(pod), Pod)
    assert again is not pod
    assert PodInfo.of(again) == PodInfo.of(pod)


@given(nodes())
def test_what_a_node_offers_survives_the_round_trip(node: Node) -> None:
    assert allocatable_amounts(decode(encode(node), Node)) == allocatable_amounts(node)


def encode_what_is_true(value: object) -> bytes:
    """A wrong encoder: leaves out whatever is false, zero or empty, said or not."""

    def without(tree: Any) -> Any:
        if isinstance(tree, dict):
            return {key: without(v) for key, v in tree.items() if v or isinstance(v, dict | list)}
        return [without(v) for v in tree] if isinstance(tree, list) else tree

    return msgspec.json.encode(without(untyped(encode(value))))


def test_control_wrong_encoder() -> None:
    assert_caught(lambda value: round_trip(value, encode_what_is_true), st.one_of(PODS_AND_NODES))
