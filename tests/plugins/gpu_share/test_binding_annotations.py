"""The simulated cluster adds the annotations of a binding to the pod, as the API server does."""

from __future__ import annotations

from stowplan.objects.devices.gpu_cards import INDEX_KEY, MILLI_KEY
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.event_queue import EventQueue
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
