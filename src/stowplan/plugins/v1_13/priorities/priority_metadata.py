"""Priority metadata of 1.13: computed once per attempt, passed to every priority function.

Source: Kubernetes v1.13, priorities/metadata.go.
"""

from __future__ import annotations

from functools import cached_property

from stowplan.framework import CycleState, NodeTable, ObjectStore, Snapshot
from stowplan.objects.meta import OwnerReference
from stowplan.objects.pod import Pod
from stowplan.plugins.v1_13.spread_selectors import (
    Requirements,
    SpreadSelectors,
    without_redundant_selectors,
)

_KEY = "v1_13.metadata"


class PriorityMetadata:
    """A pod as its priorities read it; each part is computed on first use."""

    def __init__(self, pod: Pod, object_store: ObjectStore, nodes: NodeTable) -> None:
        self.pod = pod
        self.nodes = nodes
        self._object_store = object_store

    @classmethod
    def of(cls, pod: Pod, snapshot: Snapshot, state: CycleState) -> PriorityMetadata:
        """The metadata of the attempt, created on first use."""
        kept = state.find(_KEY)
        if not isinstance(kept, cls):
            kept = cls(pod, snapshot.object_store, snapshot.nodes)
            state.write(_KEY, kept)
        return kept

    @classmethod
    def read(cls, state: CycleState) -> PriorityMetadata:
        """The metadata of the attempt; raises MissingState where no PreScore created it."""
        return state.read(_KEY, cls)

    @cached_property
    def selectors(self) -> tuple[Requirements, ...]:
        """Selectors of the pod, without those that select nothing more than another one."""
        return tuple(
            without_redundant_selectors(SpreadSelectors.of(self._object_store).all(self.pod))
        )

    @cached_property
    def first_service_selector(self) -> Requirements | None:
        """Selector of the first service that selects the pod, None without one.

        Differs: the original takes any service, in the order of a Go map; here the first to arrive.
        """
        return next(SpreadSelectors.of(self._object_store).services(self.pod), None)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls the pod."""
        return self.pod.controller

    @property
    def n_nodes(self) -> int:
        """Number of nodes, feasible or not."""
        return self.nodes.n_nodes
