"""The cheapest running pods without which a session starts a gang."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from heapq import heappop, heappush

from stowplan.cycle.change import Change, ChangedObject
from stowplan.insight.changes.freeing import victim_cost
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod

TRIALS_MAX = 200
"""Sets of pods that are tried."""

StartsWithout = Callable[[frozenset[str]], bool]
"""Whether the gang starts without pods, by their keys."""


class GangFreeing:
    """One search. is_cut: whether cheaper sets were not tried."""

    def __init__(self, starts_without: StartsWithout) -> None:
        self._starts_without = starts_without
        self._n_trials = 0
        self.is_cut = False

    def cheapest(
        self, pods: Sequence[Pod], member: Pod, origins: Mapping[str, Object | None]
    ) -> Change | None:
        """The change that ends the cheapest set of these pods; None if ending all does not help.

        member: of the gang, by whose priority the others are compared.
        """
        removable: list[tuple[int, Pod]] = []
        for pod in pods:
            cost = victim_cost(pod, member, origins)
            if cost is not None:
                removable.append((cost, pod))
        removable.sort(key=lambda one: one[0])
        if not removable or not self._helps([pod for _, pod in removable]):
            return None
        chosen = self._cheaper(removable, self._sufficient(removable))
        nodes = sorted({pod.node_name for _, pod in chosen})
        where = f"node{'s' if len(nodes) > 1 else ''} {', '.join(nodes)}"
        ended = sorted((pod for _, pod in chosen), key=lambda pod: pod.key)
        ends = " and ".join(f"ending {pod.key}" for pod in ended)
        return Change(
            "free",
            _cost(chosen),
            f"free {where} by {ends}",
            tuple(
                ChangedObject("v1", "Pod", pod.namespace, pod.name, delete=True) for pod in ended
            ),
        )

    def _helps(self, pods: Sequence[Pod]) -> bool:
        self._n_trials += 1
        return self._starts_without(frozenset(pod.key for pod in pods))

    def _sufficient(self, removable: list[tuple[int, Pod]]) -> list[tuple[int, Pod]]:
        """A set of which no pod can stay, of cheap pods: each is the last one of the shortest
        beginning that helps together with those found before."""
        chosen: list[tuple[int, Pod]] = []
        left = removable
        while left:
            low, high = 1, len(left)
            while low < high:
                middle = (low + high) // 2
                if self._helps([pod for _, pod in (*left[:middle], *chosen)]):
                    high = middle
                else:
                    low = middle + 1
            chosen.append(left[high - 1])
            left = left[: high - 1]
            if self._helps([pod for _, pod in chosen]):
                return chosen
        # Without more pods less was possible: all of them are known to help.
        return removable

    def _cheaper(
        self, removable: list[tuple[int, Pod]], known: list[tuple[int, Pod]]
    ) -> list[tuple[int, Pod]]:
        """The cheapest set; the known one if no cheaper helps."""
        limit = _cost(known)
        heap: list[tuple[int, tuple[int, ...]]] = []
        for at, (cost, _) in enumerate(removable):
            heappush(heap, (cost, (at,)))
        while heap and heap[0][0] < limit:
            if self._n_trials >= TRIALS_MAX:
                self.is_cut = True
                return known
            cost, some = heappop(heap)
            chosen = [removable[at] for at in some]
            if self._helps([pod for _, pod in chosen]):
                return chosen
            for at in range(some[-1] + 1, len(removable)):
                more = cost + removable[at][0]
                if more >= limit:
                    break
                heappush(heap, (more, (*some, at)))
        return known


def _cost(chosen: Sequence[tuple[int, Pod]]) -> int:
    return sum(cost for cost, _ in chosen)
