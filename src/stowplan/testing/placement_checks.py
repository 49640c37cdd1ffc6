"""Checks of the placements of groups and of their scores. Each yields what is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from stowplan.columns.nodetable import table_of
from stowplan.framework import ContractError, ObjectStore, Snapshot, Status
from stowplan.framework.pod_groups.placement_plugins import check_placements, placement_scores
from stowplan.framework.pod_groups.placements import (
    GroupPlacement,
    PodGroupCycle,
    ProposedPlacement,
)
from stowplan.framework.pod_groups.pod_group_states import PodGroupState
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.objects.pod import Pod
from stowplan.objects.scheduling_group import (
    PodGroupSchedulingConstraints,
    SchedulingGroup,
    SchedulingGroupMeta,
    SchedulingGroupSpec,
    TopologyConstraint,
)
from stowplan.testing.generators.choices import chance, pick, random_int
from stowplan.testing.plugin_trial import PluginTrial

NAMESPACE, NAME = "default", "g"
NamedPlacements = Status | list[tuple[str, list[str]]]
"""What a plugin returned, by node name and in an order of its own."""


def placements_are_valid(trial: PluginTrial) -> Iterator[str]:
    """`generate_placements` returns some of the given nodes, the same on a second call and with the
    nodes on other rows, and leaves its input as it is."""
    scene, plugin = trial.scene, trial.member(trial.framework())
    snapshot = scene.snapshot()
    nodes = [scene.nodes[place] for place in trial.rng.permutation(len(scene.nodes)).tolist()]
    other = Snapshot(table_of(nodes, scene.pods), ObjectStore(scene.objects))
    labels = dict.fromkeys(label for node in scene.nodes for label in node.labels)
    state = _state_of(trial)
    for key in ("", *labels):
        group = _group_of(key)
        wanted = _generated(plugin, group, state, snapshot)
        for again, how in ((snapshot, "on the second call"), (other, "with nodes on other rows")):
            got = _generated(plugin, group, state, again)
            if got != wanted:
                yield f"{key or 'no'} topology key, {how}: got {got}, expected {wanted}"


def _generated(
    plugin: RegisteredPlugin, group: SchedulingGroup, state: PodGroupState, snapshot: Snapshot
) -> NamedPlacements:
    rows = snapshot.nodes.order.copy()
    given = rows.copy()
    cycle = PodGroupCycle(group, NAME, state, snapshot, {})
    found = plugin.call("generate_placements", group, rows, cycle)
    check_placements(found, given, plugin)
    if not np.array_equal(rows, given):
        raise ContractError(
            f"plugin {plugin.name!r}: generate_placements{plugin.place('generate_placements')} "
            f"changed `rows`, which was {given.tolist()}, is {rows.tolist()}"
        )
    if isinstance(found, Status):
        return found
    names = snapshot.nodes.names
    return sorted((one.name, sorted(names[row] for row in one.rows.tolist())) for one in found)


def placement_scores_are_valid(trial: PluginTrial) -> Iterator[str]:
    """`score_placement`, normalized, gives whole numbers from 0 to SCORE_MAX, the same on a second
    call and with the placements in another order."""
    plugin, snapshot = trial.member(trial.framework()), trial.scene.snapshot()
    cycle = PodGroupCycle(_group_of(""), NAME, _state_of(trial), snapshot, {})
    proposed = _proposed(trial, snapshot)
    wanted = list(placement_scores(plugin, proposed, cycle))
    # What was kept of the first call is used, too.
    for those, how in ((proposed, "on the second call"), (_fresh(proposed), "of equal placements")):
        got = list(placement_scores(plugin, those, cycle))
        if got != wanted:
            yield f"scores of {len(proposed)} placements {how}: got {got}, expected {wanted}"
    got = list(placement_scores(plugin, _fresh(proposed[::-1]), cycle))[::-1]
    if got != wanted:
        yield f"scores of {len(proposed)} placements in another order: got {got}, expected {wanted}"


def _proposed(trial: PluginTrial, snapshot: Snapshot) -> list[ProposedPlacement]:
    """The nodes in one to four parts, with some of the pending pods on each."""
    rng, order = trial.rng, snapshot.nodes.order
    n_parts = min(random_int(rng, 1, 4), order.shape[0])
    proposed = []
    for number, rows in enumerate(np.array_split(order, n_parts)):
        pods = trial.scene.pending[: random_int(rng, 1, len(trial.scene.pending))]
        taken = [(pod, pick(rng, rows.tolist())) for pod in pods]
        proposed.append(ProposedPlacement(GroupPlacement(f"part-{number}", rows), taken))
    return proposed


def _fresh(proposed: Sequence[ProposedPlacement]) -> list[ProposedPlacement]:
    """The placements without what plugins have kept in them."""
    return [ProposedPlacement(one.placement, one.assignments) for one in proposed]


def _group_of(key: str) -> SchedulingGroup:
    topology = (TopologyConstraint(key),) if key else ()
    constraints = PodGroupSchedulingConstraints(topology)
    meta = SchedulingGroupMeta(name=NAME, namespace=NAMESPACE, uid="uid-g")
    return SchedulingGroup(
        metadata=meta, spec=SchedulingGroupSpec(scheduling_constraints=constraints)
    )


def _state_of(trial: PluginTrial) -> PodGroupState:
    """Members: the pending pods, and sometimes one that has a node."""
    state = PodGroupState(f"{NAMESPACE}/{NAME}")
    members: list[Pod] = [*trial.scene.pending]
    if chance(trial.rng, 2) and trial.scene.pods:
        members.append(pick(trial.rng, trial.scene.pods))
    for pod in members:
        state.pods[pod.uid] = pod
        (state.assigned if pod.node_name else state.unscheduled)[pod.uid] = None
    return state
