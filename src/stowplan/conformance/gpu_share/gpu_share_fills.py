"""Whole fills of a cluster with shared GPUs, and descheduling in a filled cluster."""

from __future__ import annotations

from typing import Any

import numpy as np

from stowplan.conformance.gpu_share.gpu_share_cases import (
    GpuCaseCluster,
    GpuCasePlacement,
    GpuCasePod,
    GpuShareCase,
)
from stowplan.conformance.gpu_share.gpu_share_scores import attempt_scores
from stowplan.plugins.gpu_share.card_choice import candidate_cards
from stowplan.plugins.gpu_share.descheduling import (
    DeschedulingPolicy,
    NodeWithCards,
    PodWithCards,
    victims,
)
from stowplan.plugins.gpu_share.fragmentation import (
    CATEGORIES,
    TypicalColumns,
    milli_by_category,
    milli_by_category_column,
)
from stowplan.plugins.gpu_share.policies import GpuPolicy

Answer = dict[str, Any]

FRAG_EVERY = 20
"""Steps of a fill between two reports of its fragmentation."""


def answer_fill(case: GpuShareCase, *, columns: bool) -> Answer:
    """Place the pods of a case one after the other."""
    filling = GpuShareFill(case, columns=columns)
    steps: list[Answer] = []
    arrived = used = 0
    for number, index in enumerate(case.order, start=1):
        pod = case.workload[index]
        total = pod.request.total_milli
        given = None if case.given is None else case.given[number - 1]
        step = filling.place(pod, given)
        arrived += total
        used += total if step["node"] is not None else 0
        step |= {"used": used, "arrived": arrived}
        if number % FRAG_EVERY == 0 or number == len(case.order):
            step["frag"] = filling.frag()
        steps.append(step)
    return {"steps": steps, "final": filling.nodes()}


def answer_descheduling(case: GpuShareCase, *, columns: bool) -> Answer:
    """Evict the victims of a policy, then place them again in that order."""
    filling = GpuShareFill(case, columns=columns)
    names = victims(
        DeschedulingPolicy(case.desched), filling.placed(), case.ratio, case.typical_pods
    )
    if case.policy is GpuPolicy.RANDOM:
        return {"victims": names}
    evicted = [filling.evict(name) for name in names]
    placed = []
    for pod in evicted:
        step = filling.place(pod, None)
        placed.append({"node": step["node"], "cards": step["cards"]})
    return {"victims": names, "placed": placed, "after": filling.nodes()}


class GpuShareFill:
    """The cluster of a case, filled by its policy."""

    def __init__(self, case: GpuShareCase, *, columns: bool) -> None:
        if case.policy is None:
            raise ValueError(f"family {case.family!r}: a case needs a policy")
        self.case = case
        self.policy: GpuPolicy = case.policy
        self.cluster = GpuCaseCluster(case.nodes)
        self._columns = columns
        self._row = {name: row for row, name in enumerate(self.cluster.names)}

    def place(self, pod: GpuCasePod, given: GpuCasePlacement | None) -> Answer:
        """Place a pod where the policy, or `given`, has it; returns a step without its sums."""
        cluster = self.cluster
        rows = np.flatnonzero(cluster.feasible(pod, columns=self._columns))
        step: Answer = {"feasible": int(rows.size), "node": None, "cards": ()}
        if given is not None:
            if given.node is None:
                return step
            row, cards = self._row[given.node], given.cards
        elif rows.size:
            request = pod.request
            row = int(rows[0])
            if rows.size > 1:
                selected = cluster.table.columns().take(rows)
                scores = attempt_scores(
                    self.policy, selected, request, self.case.choice, columns=self._columns
                )
                if scores.fails:
                    return step
                best = rows[scores.normalized == scores.normalized.max()].tolist()
                step |= {"score": int(scores.normalized.max()), "ties": len(best)}
                row = min(best, key=lambda one: cluster.names[one])
            choices = candidate_cards(cluster.table.state(row), request, self.case.choice)
            if not choices or request.is_several_shares:
                return step
            cards = choices[0]
        else:
            return step
        cluster.add(row, pod, cards)
        return step | {"node": cluster.names[row], "cards": cards}

    def evict(self, name: str) -> GpuCasePod:
        """Remove a pod and return it."""
        for row, pods in enumerate(self.cluster.pods):
            for pod in pods:
                if pod.name == name:
                    self.cluster.remove(row, pod)
                    return pod
        raise ValueError(f"there is no pod {name!r}")

    def frag(self) -> list[float]:
        """Milli in each category, summed over the nodes in the order of their names."""
        cards, typical = self.cluster.table.columns(), self.case.typical_pods
        if self._columns:
            found = milli_by_category_column(
                cards.cpu_left, cards.left, cards.model, TypicalColumns(typical, cards.models)
            ).tolist()
        else:
            rows = range(len(self.cluster.names))
            found = [milli_by_category(cards.state(row), typical) for row in rows]
        sums = [0.0] * len(CATEGORIES)
        for row in sorted(self._row.values(), key=lambda row: self.cluster.names[row]):
            sums = [have + more for have, more in zip(sums, found[row], strict=True)]
        return sums

    def nodes(self) -> list[Answer]:
        """What is left of each node."""
        states = (self.cluster.table.state(row) for row in range(len(self.cluster.names)))
        return [
            {"name": name, "cpu_left": state.cpu_left, "left": state.left}
            for name, state in zip(self.cluster.names, states, strict=True)
        ]

    def placed(self) -> list[NodeWithCards]:
        """The nodes with their pods."""
        return [
            NodeWithCards(
                name,
                self.cluster.table.state(row),
                tuple(PodWithCards(pod.name, pod.request, pod.cards) for pod in pods),
            )
            for row, (name, pods) in enumerate(
                zip(self.cluster.names, self.cluster.pods, strict=True)
            )
        ]
