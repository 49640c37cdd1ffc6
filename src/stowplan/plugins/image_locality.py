"""ImageLocality: prefer nodes that already have the pod's images.

An image counts with its size times the share of nodes that have it, so that a rare image does
not draw all its pods to one node.

Source: kube-scheduler v1.36, plugins/imagelocality.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.framework import SCORE_MAX, NodeInfo, NodeTable, Rows
from stowplan.framework.plugin import Plugin
from stowplan.objects.pod import Pod, PodSpec
from stowplan.plugins.arithmetic import n_rows_of

_MIB = 1024 * 1024
BYTES_MIN = 23 * _MIB
BYTES_MAX_PER_CONTAINER = 1000 * _MIB

_KEPT = "ImageLocality"


class ImageLocality:
    """Score by the bytes of the pod's images that a node has."""

    name = "ImageLocality"
    declaration = Plugin(name=name, reads=(), node_only=True, by_outline=True)

    def score(self, pod: Pod, node: NodeInfo, nodes: NodeTable) -> int:
        """0 for less than 23 MiB here, 100 for 1000 MiB per container or more."""
        held = 0
        for name in images_of(pod):
            if name in node.images:
                size, n_holders = node.images[name]
                held += int(scaled_image_size(size, np.array([n_holders]), nodes.n_nodes)[0])
        return int(image_locality_score(np.array([held]), pod)[0])

    def score_column(self, pod: Pod, nodes: NodeTable, rows: Rows) -> Ints:
        """int64 (n_rows,): `score` of each row."""
        known = [nodes.images.states[n] for n in images_of(pod) if n in nodes.images.states]
        if not known:
            return np.full(
                n_rows_of(rows), image_locality_score(np.zeros(1, dtype=np.int64), pod)[0]
            )
        held = np.zeros(nodes.n_nodes, dtype=np.int64)
        for image in known:
            holders, n_holders = image.arrays()
            held[holders] += scaled_image_size(image.size, n_holders, nodes.n_nodes)
        return image_locality_score(held[rows], pod)

    def signature(self, pod: Pod) -> object:
        """The images, in any order, and how many containers they are for."""
        return tuple(sorted(images_of(pod))), n_containers(pod)


def scaled_image_size(size: int, n_holders: Ints, n_nodes: int) -> Ints:
    """int64 (n,): bytes that an image counts for, where `n_holders` nodes have it."""
    counted: Ints = (size * (n_holders / n_nodes)).astype(np.int64)
    return counted


def image_locality_score(held: Ints, pod: Pod) -> Ints:
    """int64 (n,): bytes as a score from 0 to 100."""
    most = BYTES_MAX_PER_CONTAINER * n_containers(pod)
    # The lower bound goes first: for a pod without containers it exceeds the upper one.
    clamped = np.where(held < BYTES_MIN, BYTES_MIN, np.minimum(held, most))
    scores: Ints = SCORE_MAX * (clamped - BYTES_MIN) // (most - BYTES_MIN)
    return scores


def n_containers(pod: Pod) -> int:
    """Number of containers and init containers of the pod."""
    return len(pod.spec.containers) + len(pod.spec.init_containers)


def images_of(pod: Pod) -> tuple[str, ...]:
    """The names of the pod's images, each as often as it is used."""
    kept: tuple[str, ...] | None = pod.spec.__dict__.get(_KEPT)
    if kept is None:
        kept = pod.spec.__dict__[_KEPT] = tuple(map(normalized_image_name, _references(pod.spec)))
    return kept


def _references(spec: PodSpec) -> Iterator[str]:
    yield from (container.image for container in spec.init_containers)
    yield from (container.image for container in spec.containers)
    for volume in spec.volumes:
        if volume.image is not None:
            yield volume.image.reference


def normalized_image_name(name: str) -> str:
    """An image name with `:latest` where it has neither tag nor digest."""
    return name if name.rfind(":") > name.rfind("/") else f"{name}:latest"
