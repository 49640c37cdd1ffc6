"""What 1.13's priorities read of a pod: found out once per attempt, handed to every function.

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
    """A pod as its priorities see it; each part is found out when it is first read."""

    def __init__(self, pod: Pod, object_store: ObjectStore, nodes: NodeTable) -> None:
        self.pod = pod
        self.nodes = nodes
        self._object_store = object_store

    @classmethod
    def of(cls, pod: Pod, snapshot: Snapshot, state: CycleState) -> PriorityMetadata:
        """The attempt's metadata, made by whoever asks first."""
        kept = state.find(_KEY)
        if not isinstance(kept, cls):
            kept = cls(pod, snapshot.object_store, snapshot.nodes)
            state.write(_KEY, kept)
        return kept

    @classmethod
    def read(cls, state: CycleState) -> PriorityMetadata:
        """The attempt's metadata; raises MissingState where no PreScore has made it."""
        return state.read(_KEY, cls)

    @cached_property
    def selectors(self) -> tuple[Requirements, ...]:
        """What selects the pod; those left out that take nothing more than another one."""
        return tuple(
            without_redundant_selectors(SpreadSelectors.of(self._object_store).all(self.pod))
        )

    @cached_property
    def first_service_selector(self) -> Requirements | None:
        """What the first service that selects the pod selects by, None without one.

        Differs: the original takes any service, in the order of a Go map; here the first to arrive.
        """
        return next(SpreadSelectors.of(self._object_store).services(self.pod), None)

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls the pod."""
        return self.pod.controller

    @property
    def n_nodes(self) -> int:
        """How many nodes there are, feasible or not."""
        return self.nodes.n_nodes
