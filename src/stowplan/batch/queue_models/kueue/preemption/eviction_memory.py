"""Which evictions are not repeated, so that preemption ends.

Differs: Kueue decides each cycle by itself. Where shares or quotas of cohorts disagree with the
order of admission, two workloads can evict each other for ever, or one evicts another that is
admitted again before it (kueue#3779, #7101, #14543). Here an eviction that did not help is not
repeated, and no workload evicts another one twice while nothing else changes in the tree. There are
finitely many pairs of workloads, so every tree comes to rest.
"""

from __future__ import annotations

from collections.abc import Iterable

Pair = tuple[str, str]
"""Preemptor and victim, by key."""


class EvictionMemory:
    """Evictions that count against their repetition.

    useless: pairs where the victim was admitted again before the preemptor.
    """

    def __init__(self) -> None:
        self.useless: set[Pair] = set()
        self._since_change: dict[str, set[Pair]] = {}
        # Workload -> useless pairs in which it is.
        self._useless_with: dict[str, set[Pair]] = {}
        # Victim -> preemptors that were not admitted yet, and the same the other way round.
        self._waiting_for: dict[str, set[str]] = {}
        self._victims_of: dict[str, set[str]] = {}

    def is_barred(self, preemptor: str, victim: str, tree: str) -> bool:
        """Whether one may not evict the other. tree: the name of the root above both."""
        pair = preemptor, victim
        return pair in self.useless or pair in self._since_change.get(tree, ())

    def evicted(self, preemptor: str, victim: str, tree: str) -> None:
        """Note an eviction."""
        self._since_change.setdefault(tree, set()).add((preemptor, victim))
        self._waiting_for.setdefault(victim, set()).add(preemptor)
        self._victims_of.setdefault(preemptor, set()).add(victim)

    def admitted(self, key: str) -> None:
        """Note an admission: evictions of the workload that helped no one yet were useless."""
        for preemptor in self._settled(key):
            pair = preemptor, key
            self.useless.add(pair)
            for one in pair:
                self._useless_with.setdefault(one, set()).add(pair)

    def finished(self, key: str) -> None:
        """Forget a workload."""
        for pair in self._useless_with.pop(key, ()):
            self.useless.discard(pair)
            for one in pair:
                if one in self._useless_with:
                    self._useless_with[one].discard(pair)
        self._settled(key)

    def _settled(self, key: str) -> set[str]:
        """A workload waits no longer, and none waits for its quota; preemptors that did."""
        for victim in self._victims_of.pop(key, ()):
            if victim in self._waiting_for:
                self._waiting_for[victim].discard(key)
        preemptors = self._waiting_for.pop(key, set())
        for one in preemptors:
            if one in self._victims_of:
                self._victims_of[one].discard(key)
        return preemptors

    def tree_changed(self, tree: str) -> None:
        """A workload came to a tree, or left it."""
        self._since_change.pop(tree, None)

    def quota_changed(self, trees: Iterable[str]) -> None:
        """Quotas or policies changed: what was useless may help now."""
        for tree in trees:
            self.tree_changed(tree)
        self.useless.clear()
        self._useless_with.clear()
