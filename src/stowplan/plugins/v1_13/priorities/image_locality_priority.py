"""ImageLocalityPriority: prefer nodes that already have the images of the pod's containers.

Source: Kubernetes v1.13, priorities/image_locality.go and scheduler/cache/util.go.
"""

from __future__ import annotations

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import NodeInfo, NodeTable, Rows
from stowplan.framework.functions.priorities import PRIORITY_MAX
from stowplan.framework.plugin import Plugin
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.plugins.image_locality import normalized_image_name, scaled_image_size

_MIB = 1024 * 1024
BYTES_MIN = 23 * _MIB
BYTES_MAX = 1000 * _MIB

_KEPT = "v1_13.images"


class ImageLocalityPriority:
    """Score by the bytes of the pod's images that a node has, by the sizes in its status."""

    name = "ImageLocalityPriority"
    declaration = Plugin(name=name, reads=())

    def score(self, pod: Pod, node: NodeInfo, nodes: NodeTable) -> int:
        """0 for less than 23 MiB here, 10 for 1000 MiB or more."""
        sizes = image_sizes_on_node(node.node)
        held = 0
        for name in images_of(pod):
            if name in sizes:
                held += int(
                    scaled_image_size(sizes[name], _rows_with_image(name, nodes), nodes.n_nodes)[0]
                )
        return int(_image_locality_score(np.array([held]))[0])

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        held = np.zeros(nodes.n_nodes, dtype=np.int64)
        for name in images_of(pod):
            state = nodes.images.states.get(name)
            if state is not None:
                there = np.fromiter(state.rows, dtype=np.int64, count=len(state.rows))
                known = (image_sizes_on_node(nodes.nodes[row])[name] for row in state.rows)
                sizes = np.fromiter(known, dtype=np.float64, count=len(state.rows))
                share = len(state.rows) / nodes.n_nodes
                held[there] += (sizes * share).astype(np.int64)
        return _image_locality_score(held[rows])

    def signature(self, pod: Pod) -> object:
        """The images, in any order."""
        return tuple(sorted(images_of(pod)))


def image_sizes_on_node(node: Node) -> dict[str, int]:
    """Image name -> bytes on a node; for a name that is listed twice the last size counts."""
    return {name: image.size_bytes for image in node.status.images for name in image.names}


def images_of(pod: Pod) -> tuple[str, ...]:
    """The names of the containers' images, each as often as it is used."""
    kept: tuple[str, ...] | None = pod.spec.__dict__.get(_KEPT)
    if kept is None:
        names = (normalized_image_name(container.image) for container in pod.spec.containers)
        kept = pod.spec.__dict__[_KEPT] = tuple(names)
    return kept


def _rows_with_image(name: str, nodes: NodeTable) -> Ints:
    state = nodes.images.states.get(name)
    return np.array([0 if state is None else len(state.rows)])


def _image_locality_score(held: Ints) -> Ints:
    clamped = np.clip(held, BYTES_MIN, BYTES_MAX)
    scores: Ints = PRIORITY_MAX * (clamped - BYTES_MIN) // (BYTES_MAX - BYTES_MIN)
    return scores
