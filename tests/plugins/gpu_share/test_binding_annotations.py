"""Annotations of bindings: the simulated cluster adds them as the API server does, and a pod that
comes back has none of them."""

from __future__ import annotations

from stowplan.cycle.explanation import pending_form
from stowplan.objects.devices.binding_annotations import BINDING_ANNOTATIONS
from stowplan.objects.devices.gpu_cards import INDEX_KEY, MILLI_KEY
from stowplan.plugins.gpu_share.conventions import CONVENTIONS
from stowplan.plugins.gpu_share.conventions.gpu_devices import (
    ContainerDevices,
    DeviceRequest,
    DeviceShare,
)
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.event_queue import EventQueue
from stowplan.testing import node, pod
from tests.plugins.gpu_share.gpu_cases import gpu_node, gpu_pod


def test_a_bound_pod_has_its_cards() -> None:
    cluster = SimulatedCluster(EventQueue())
    cluster.put_node(gpu_node("n", 2))
    for name in "ab":
        cluster.put_pod(gpu_pod(name, 1, 500))
    assert cluster.bind("default/a", "default/a", "n", {INDEX_KEY: "1"}) == 201
    assert cluster.bind("default/b", "default/b", "n") == 201
    notes = {key: pod.metadata.annotations for key, pod in cluster.pods.items()}
    assert (notes["default/a"][INDEX_KEY], notes["default/a"][MILLI_KEY]) == ("1", "500")
    assert INDEX_KEY not in notes["default/b"]


def test_a_pod_that_comes_back_has_none_of_them() -> None:
    bound = gpu_pod("a", 1, 500, cards="1", on="n")
    assert pending_form(bound).metadata.annotations.keys() == {
        MILLI_KEY,
        "alibabacloud.com/gpu-count",
    }
    # A pending pod prescribes its cards.
    assert INDEX_KEY in pending_form(gpu_pod("a", 1, 500, cards="1")).metadata.annotations


def test_every_convention_is_listed() -> None:
    for convention in CONVENTIONS.values():
        request = DeviceRequest(convention.name, (ContainerDevices(0, 1, 4),))
        given = ((DeviceShare("0", 4),),)
        notes = convention.notes(pod("a"), request, given, node("n"))
        assert notes.annotations.keys() | notes.times.keys() <= BINDING_ANNOTATIONS
