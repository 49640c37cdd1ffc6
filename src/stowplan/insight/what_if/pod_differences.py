"""Comparison: for which pods an outcome after changes differs from the one before."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from stowplan.insight.pod_owners import owner_text
from stowplan.insight.pod_placement import Placement
from stowplan.insight.what_if.change_state import ChangedCluster
from stowplan.insight.what_if.result import (
    BLOCKED,
    DELETED,
    EFFECTS,
    ELSEWHERE,
    EVICTED,
    LOST,
    MOVED,
    PLACED,
    UNPLACED,
    BudgetUse,
    PodDifference,
    PreemptionStep,
    Victim,
)
from stowplan.objects.pod import Pod
from stowplan.objects.workload import PodDisruptionBudget


class Side(msgspec.Struct):
    """One side of a comparison. pods: of the version, by key. placements: of its pending pods.
    evicted: pod -> what evicted it. waits: pod -> seconds."""

    pods: Mapping[str, Pod]
    placements: Mapping[str, Placement]
    evicted: Mapping[str, str] = {}
    waits: Mapping[str, float] = {}

    def node_of(self, key: str) -> str:
        """The node of a pod, "" for none."""
        if key in self.placements:
            return self.placements[key].node
        pod = self.pods.get(key)
        return "" if pod is None or key in self.evicted else pod.node_name


def differences(
    before: Side, after: Side, changed: ChangedCluster, steps: Iterable[PreemptionStep] = ()
) -> list[PodDifference]:
    """The pods for which there is a difference, by effect, then in the order of the cluster."""
    victims = {one.pod: (step, one) for step in steps for one in step.victims}
    found = [*_left(before, changed), *_evicted(before, after, changed, victims)]
    known = {one.pod for one in found}
    keys = [*before.placements, *changed.recreated, *after.placements]
    for key in dict.fromkeys(keys):
        one = None if key in known else _difference(key, before, after, changed)
        if one is not None:
            found.append(one)
    rank = {effect: place for place, effect in enumerate(EFFECTS)}
    return sorted(found, key=lambda one: rank[one.effect])


def _left(before: Side, changed: ChangedCluster) -> Iterator[PodDifference]:
    """Pods that are there no more, or may not leave."""
    for effect, pods in ((LOST, changed.lost), (DELETED, changed.deleted)):
        for key, why in pods.items():
            owner = _owner(key, before)
            yield PodDifference(key, owner, effect, source=before.node_of(key), reason=why)
    for key, budget in changed.blocked.items():
        node = before.node_of(key)
        reason = f"disruption budget {budget} allows no further eviction"
        yield PodDifference(
            key, _owner(key, before), BLOCKED, source=node, target=node, reason=reason, by=budget
        )


def _evicted(
    before: Side,
    after: Side,
    changed: ChangedCluster,
    victims: Mapping[str, tuple[PreemptionStep, Victim]],
) -> Iterator[PodDifference]:
    for key, (step, victim) in victims.items():
        if key in changed.lost or key in changed.deleted:
            continue
        yield PodDifference(
            key,
            victim.owner,
            EVICTED,
            source=before.node_of(key) or step.node,
            target=victim.again or "",
            reason="" if victim.again else _not_again(key, after, victim),
            by=step.preemptor,
            budgets=victim.budgets,
            ran_s=victim.ran_s,
        )
    for key, taker in after.evicted.items():
        # What is evicted without the changes, too, makes no difference.
        if key not in victims and key not in before.evicted:
            yield PodDifference(
                key,
                _owner(key, after),
                EVICTED,
                source=before.node_of(key),
                target=after.placements[key].node if key in after.placements else "",
                by=taker,
                wait_s=after.waits.get(key),
            )


def _not_again(key: str, after: Side, victim: Victim) -> str:
    if key in after.placements and after.placements[key].reason:
        return after.placements[key].reason
    return "no owner creates it again" if victim.again is None else "pending"


def _difference(
    key: str, before: Side, after: Side, changed: ChangedCluster
) -> PodDifference | None:
    if key not in after.pods and key not in after.placements:
        return None
    source, target = before.node_of(key), after.node_of(key)
    ran = key in changed.recreated
    if source == target and not ran and (source or key in before.pods):
        return None
    if target and key not in before.pods and key not in changed.submitted:
        # A pod of a DaemonSet, on a new node.
        return None
    effect = PLACED
    if not target:
        effect = UNPLACED
    elif ran:
        effect = MOVED
    elif source:
        effect = ELSEWHERE
    refusal = after.placements.get(key)
    is_refused = not target and refusal is not None
    return PodDifference(
        key,
        _owner(key, after),
        effect,
        source=source,
        target=target,
        reason=refusal.reason if is_refused and refusal is not None else "",
        message=refusal.message if is_refused and refusal is not None else "",
        wait_s=after.waits.get(key),
    )


def _owner(key: str, side: Side) -> str:
    pod = side.pods.get(key)
    return "" if pod is None else owner_text(pod)


def budget_uses(after: Side, changed: ChangedCluster) -> list[BudgetUse]:
    """Every disruption budget that a drain meets, in the order in which it does."""
    allowed = {
        one.key: one.status.disruptions_allowed
        for one in changed.cluster.objects
        if isinstance(one, PodDisruptionBudget)
    }
    evicted: dict[str, list[str]] = {}
    for key, budgets in changed.budgets.items():
        for budget in budgets:
            evicted.setdefault(budget, []).append(key)
    blocked: dict[str, int] = {}
    for budget in changed.blocked.values():
        blocked[budget] = blocked.get(budget, 0) + 1
    return [
        BudgetUse(
            budget,
            allowed.get(budget, 0),
            len(evicted.get(budget, ())),
            sum(not after.node_of(key) for key in evicted.get(budget, ())),
            blocked.get(budget, 0),
        )
        for budget in dict.fromkeys((*evicted, *blocked))
    ]


def stalled(after: Side, changed: ChangedCluster) -> dict[str, str]:
    """Pod -> budget, of the evicted pods that a drain would not have been allowed to evict.

    A drain goes on when an evicted pod has a node again. Once as many pods of a budget as it allows
    have none, its other pods stay.
    """
    allowed = {
        one.key: one.status.disruptions_allowed
        for one in changed.cluster.objects
        if isinstance(one, PodDisruptionBudget)
    }
    out: dict[str, int] = {}
    found: dict[str, str] = {}
    for key, budgets in changed.budgets.items():
        full = next((one for one in budgets if out.get(one, 0) >= allowed[one]), None)
        if full is not None:
            found[key] = full
        elif not after.node_of(key):
            for budget in budgets:
                out[budget] = out.get(budget, 0) + 1
    return found
