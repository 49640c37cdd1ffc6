"""Placements: the sets of nodes that a group is tried on, and what a trial found.

Source: kube-scheduler v1.36, framework interface (GroupPlacement, PodGroupAssignments).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import msgspec

from stowplan.columns.array_types import Ints
from stowplan.columns.overlay import Overlay
from stowplan.framework.pod_groups.pod_group_states import PodGroupState
from stowplan.framework.snapshot import Snapshot
from stowplan.framework.status import Status
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import SchedulingGroup

N_ASSUMED = "members assumed in the cycle"
"""Key of the values of a group cycle: how many members are assumed in it at the moment."""


class GroupPlacement(msgspec.Struct, frozen=True, eq=False):
    """Nodes that may take a group. name: of the domain, "" for all nodes. rows: int64, in the order
    of the snapshot."""

    name: str
    rows: Ints


class ProposedPlacement(msgspec.Struct, frozen=True, eq=False):
    """A placement in which the group is schedulable. assignments: of the placed pods, with the
    row. scores: by plugin, for those whose score depends on nothing but the requests of these pods
    and the nodes: they keep it here while the nodes are as they are."""

    placement: GroupPlacement
    assignments: Sequence[tuple[Pod, int]]
    scores: dict[str, int] = {}


class PodGroupCycle(msgspec.Struct, frozen=True, eq=False):
    """What the plugins of a group cycle read: the group, None where it does not exist, its name,
    its members, the cluster, and what plugins keep for the cycle."""

    group: SchedulingGroup | None
    name: str
    state: PodGroupState
    snapshot: Snapshot
    values: dict[str, Any]


class PodGroupTrial(msgspec.Struct, frozen=True, eq=False):
    """What a group's PostFilter works with; changes of the overlay are undone afterwards.

    run: tries to place the whole group on what the overlay shows, without PostFilter; "" when it
    is schedulable, else why not. victims: filled by the plugin, in order of eviction.
    """

    pods: Sequence[Pod]
    snapshot: Snapshot
    overlay: Overlay
    run: Callable[[], str]
    victims: list[Pod]


@runtime_checkable
class PlacementGeneratePlugin(Protocol):
    """Divides the nodes into the placements that a group is tried on; one per profile."""

    def generate_placements(
        self, group: SchedulingGroup | None, rows: Ints, cycle: PodGroupCycle
    ) -> Sequence[GroupPlacement] | Status:
        """The placements, in the order in which they are tried, or an error. rows: all nodes, in
        the order of the snapshot. Without a placement the group is unschedulable."""


@runtime_checkable
class PlacementScorePlugin(Protocol):
    """Compares the placements in which a group is schedulable."""

    def score_placement(self, placement: ProposedPlacement, cycle: PodGroupCycle) -> int:
        """0 to 100, more is better, unless `normalize_placement_scores` makes it so. The scores of
        all plugins are added by weight."""


@runtime_checkable
class PodGroupPostFilterPlugin(Protocol):
    """Makes room for a group that is unschedulable as a whole."""

    def pod_group_post_filter(self, group: SchedulingGroup, trial: PodGroupTrial) -> Status:
        """Success with `trial.victims` set, or why nothing helps."""
