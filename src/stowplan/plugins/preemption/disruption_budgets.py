"""Disruption budgets in preemption: which evictions take a budget below zero.

Source: kube-scheduler v1.36, framework/preemption filterPodsWithPDBViolation.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

import numpy as np

from stowplan.columns import PodInfo
from stowplan.columns.array_types import Bools, Ints
from stowplan.framework import ObjectStore
from stowplan.objects.pod import Pod
from stowplan.objects.selectors import SelectorError, label_selector_matches
from stowplan.objects.workload import PodDisruptionBudget

NO_PDB = 0
"""The group of the pods that no budget covers."""

CACHED_LABEL_SETS_MAX = 4096
"""Number of label sets whose budgets are cached, before all are forgotten."""


def filter_pods_with_pdb_violation(
    evictable: Sequence[PodInfo], budgets: Sequence[PodDisruptionBudget]
) -> tuple[list[PodInfo], list[PodInfo]]:
    """(protected, free), each in the order given: the most important first.

    Protected are those whose eviction takes a budget below zero, when all are evicted in order.
    """
    allowed = [budget.status.disruptions_allowed for budget in budgets]
    protected: list[PodInfo] = []
    free: list[PodInfo] = []
    for info in evictable:
        violates = False
        for index, budget in enumerate(budgets):
            if pdb_counts_eviction(budget, info.pod):
                allowed[index] -= 1
                violates |= allowed[index] < 0
        (protected if violates else free).append(info)
    return protected, free


def pdb_counts_eviction(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """True when evicting `pod` counts against `budget`.

    A pod that the API server has already counted as disrupted does not count again.
    """
    return pdb_selects(budget, pod) and pod.name not in budget.status.disrupted_pods


def pdb_selects(budget: PodDisruptionBudget, pod: Pod) -> bool:
    """True when `budget` selects pods with this namespace and these labels.

    An empty selector selects none, nor does one that cannot be parsed.
    """
    selector = budget.spec.selector
    if budget.namespace != pod.namespace or not pod.labels or selector is None:
        return False
    if not (selector.match_labels or selector.match_expressions):
        return False
    try:
        return label_selector_matches(selector, pod.labels)
    except SelectorError:
        return False


class DisruptionBudgetIndex:
    """The budgets of an object store by number, and groups of pods that the same budgets cover.

    cover: revision; changes when the budgets that cover a pod may have changed, which starts the
    groups anew. budgets: in order of arrival. allowed: int64 (n_budgets,), disruptions that each
    allows; read only.
    """

    def __init__(self) -> None:
        self.cover = object()
        self.allowed: Ints = np.zeros(0, dtype=np.int64)
        self._object_store: ObjectStore | None = None
        self._version = -1
        self.budgets: tuple[PodDisruptionBudget, ...] = ()
        self._begin()

    def _begin(self) -> None:
        self.cover = object()
        self._selected: dict[Hashable, tuple[tuple[int, ...], int]] = {}
        self._groups: dict[tuple[int, ...], int] = {(): NO_PDB}
        self._disrupted = frozenset(
            name for budget in self.budgets for name in budget.status.disrupted_pods
        )

    @property
    def grouping(self) -> Callable[[Sequence[PodInfo]], list[int]] | None:
        """Returns the groups of pods, see `group_of`; None while there is no budget."""
        return self._groups_of if self.budgets else None

    def follow(self, object_store: ObjectStore) -> None:
        """Update the budgets from the object store."""
        if object_store is self._object_store and object_store.version == self._version:
            return
        self._object_store, self._version = object_store, object_store.version
        before, now = self.budgets, tuple(object_store.all(PodDisruptionBudget))
        if len(now) == len(before) and all(a is b for a, b in zip(before, now, strict=True)):
            return
        self.budgets = now
        self.allowed = np.array([b.status.disruptions_allowed for b in now], dtype=np.int64)
        if list(map(_selection_key, before)) != list(map(_selection_key, now)):
            self._begin()

    def group_of(self, pod: Pod) -> int:
        """The number of the group of pods that the same budgets cover, UNCOVERED for none."""
        selected, group = self._selected_by(pod)
        if selected and pod.name in self._disrupted:
            return self._number(self.covering(pod))
        return group

    def _groups_of(self, pods: Sequence[PodInfo]) -> list[int]:
        """`group_of` of each of many pods, most of them by one look-up."""
        if self._disrupted:
            return [self.group_of(info.pod) for info in pods]
        found, known = [], self._selected
        for info in pods:
            metadata = info.pod.metadata
            kept = known.get((metadata.namespace, tuple(metadata.labels.items())))
            found.append((kept or self._selected_by(info.pod))[1])
        return found

    def covering(self, pod: Pod) -> tuple[int, ...]:
        """The numbers of the budgets that count an eviction of the pod."""
        selected, _ = self._selected_by(pod)
        if not selected or pod.name not in self._disrupted:
            return selected
        # It is one of those selected that may be disrupted already.
        name = pod.name
        return tuple(i for i in selected if name not in self.budgets[i].status.disrupted_pods)

    def _selected_by(self, pod: Pod) -> tuple[tuple[int, ...], int]:
        """The budgets that select the pod, and the number of the group of such pods."""
        metadata = pod.metadata
        key = metadata.namespace, tuple(metadata.labels.items())
        found = self._selected.get(key)
        if found is None:
            numbered = enumerate(self.budgets)
            selected = tuple(index for index, budget in numbered if pdb_selects(budget, pod))
            if len(self._selected) >= CACHED_LABEL_SETS_MAX:
                self._selected.clear()
            found = self._selected[key] = selected, self._number(selected)
        return found

    def _number(self, covering: tuple[int, ...]) -> int:
        return self._groups.setdefault(covering, len(self._groups)) if covering else NO_PDB

    def groups_under(self, budgets: Ints) -> Bools:
        """bool (n_groups,): the groups that one of these budgets covers."""
        asked = set(budgets.tolist())
        return np.array([not asked.isdisjoint(group) for group in self._groups])

    def protected(self, groups: Ints, owners: Ints) -> Bools:
        """bool (n_pods,): the pods whose eviction takes a budget below zero, row by row.

        groups, owners: int64 (n_pods,), the pods' groups and rows; the pods of a row stand
        together, in the order in which they are evicted.
        """
        violates = np.zeros(groups.shape[0], dtype=np.bool_)
        covered = np.flatnonzero(groups != NO_PDB)
        if covered.shape[0] == 0:
            return violates
        members = list(self._groups)
        sizes = np.array([len(group) for group in members])
        flat = np.array([budget for group in members for budget in group], dtype=np.int64)
        # One entry per pod and budget that covers it.
        n_entries = sizes[groups[covered]]
        pods = np.repeat(covered, n_entries)
        first = (np.cumsum(sizes) - sizes)[groups[covered]]
        offset = np.arange(pods.shape[0]) - np.repeat(np.cumsum(n_entries) - n_entries, n_entries)
        budgets = flat[np.repeat(first, n_entries) + offset]
        # The entries of one row and budget, in order: the n-th takes the budget down by n.
        order = np.lexsort((pods, budgets, owners[pods]))
        pods, budgets = pods[order], budgets[order]
        owner = owners[pods]
        begins = np.ones(pods.shape[0], dtype=np.bool_)
        begins[1:] = (owner[1:] != owner[:-1]) | (budgets[1:] != budgets[:-1])
        places = np.arange(pods.shape[0])
        taken = places - np.maximum.accumulate(np.where(begins, places, 0)) + 1
        violates[pods[taken > self.allowed[budgets]]] = True
        return violates


def _selection_key(budget: PodDisruptionBudget) -> Hashable:
    """What selects the pods of a budget; its selector counts by identity or content."""
    return budget.namespace, budget.spec, tuple(budget.status.disrupted_pods)
