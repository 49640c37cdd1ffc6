"""Answers to cases of shared GPUs, as the original simulator answers them, with its defects."""

from __future__ import annotations

from typing import Any

import numpy as np
from msgspec.structs import replace

from stowplan.columns.array_types import Ints
from stowplan.conformance.gpu_share.gpu_share_cases import (
    GpuCaseCluster,
    GpuCasePod,
    GpuCaseTypicalPod,
    GpuShareCase,
    read_case,
)
from stowplan.conformance.gpu_share.gpu_share_fills import answer_descheduling, answer_fill
from stowplan.conformance.gpu_share.gpu_share_scores import attempt_scores
from stowplan.objects.devices.gpu_cards import CardState, GpuShareRequest
from stowplan.plugins.gpu_share.card_choice import candidate_cards
from stowplan.plugins.gpu_share.fragment_lookahead import LookAhead
from stowplan.plugins.gpu_share.fragmentation import (
    CATEGORIES,
    TypicalColumns,
    category,
    fragment,
    milli_by_category,
    milli_by_category_column,
    shares_by_category,
)
from stowplan.plugins.gpu_share.gpu_card_columns import GpuCardColumns
from stowplan.plugins.gpu_share.policies import GpuPolicy
from stowplan.plugins.gpu_share.typical_pods import typical_pods

Answer = dict[str, Any]

__all__ = ["answer", "read_case"]


def answer(case: GpuShareCase, *, columns: bool = True) -> Answer:
    """The answer to one case. columns: compute by column, else node by node; both are equal.

    Raises ValueError for an invalid case.
    """
    match case.family:
        case "typical":
            return _answer_typical(case)
        case "frag":
            return _answer_frag(case, columns=columns)
        case "fill":
            return answer_fill(case, columns=columns)
        case "desched":
            return answer_descheduling(case, columns=columns)
        case _:
            return _Attempt(case, columns=columns).answer()


def _answer_typical(case: GpuShareCase) -> Answer:
    workload = ((pod.request, pod.count) for pod in case.workload)
    found = typical_pods(workload, case.config)
    return {"typical": [GpuCaseTypicalPod.of(one) for one in found]}


# Fragmentation.


def _answer_frag(case: GpuShareCase, *, columns: bool) -> Answer:
    cluster, typical = GpuCaseCluster(case.nodes), case.typical_pods
    states = [cluster.table.state(row) for row in range(len(cluster.nodes))]
    by = _milli(states, case, columns=columns)
    nodes = []
    for name, state, milli in zip(cluster.names, states, by, strict=True):
        node: Answer = {
            "name": name,
            "left": state.left,
            "cpu_left": state.cpu_left,
            "amount": fragment(milli),
            "by": milli,
            "categories": [CATEGORIES[category(state, one)] for one in typical],
            "ratio": shares_by_category(state, typical),
        }
        if case.note == "bellman":
            node["bellman"] = LookAhead(typical).fragment(state)
        nodes.append(node)
    cluster_by = [0.0] * len(CATEGORIES)
    for milli in by:
        cluster_by = [have + more for have, more in zip(cluster_by, milli, strict=True)]
    return {"nodes": nodes, "cluster": cluster_by}


def _milli(states: list[CardState], case: GpuShareCase, *, columns: bool) -> list[list[float]]:
    typical = case.typical_pods
    if not columns:
        return [milli_by_category(state, typical) for state in states]
    cards = GpuCardColumns.of(states)
    found: list[list[float]] = milli_by_category_column(
        cards.cpu_left, cards.left, cards.model, TypicalColumns(typical, cards.models)
    ).tolist()
    return found


# One attempt.


class _Attempt:
    """One decision: filter, score, and cards on each feasible node."""

    def __init__(self, case: GpuShareCase, *, columns: bool) -> None:
        if case.pod is None:
            raise ValueError(f"family {case.family!r}: a case needs a pod")
        self.case = case
        self.columns = columns
        self.pod: GpuCasePod = case.pod
        self.request: GpuShareRequest = case.pod.request
        self.cluster = GpuCaseCluster(case.nodes)
        self.states = [self.cluster.table.state(row) for row in range(len(case.nodes))]
        self.nodes: list[Answer] = [
            {"name": name, "left": state.left, "cpu_left": state.cpu_left}
            for name, state in zip(self.cluster.names, self.states, strict=True)
        ]

    def answer(self) -> Answer:
        """What the original answers."""
        if self.case.typical is not None:
            for node, state in zip(self.nodes, self.states, strict=True):
                node["frag"] = self._frag(state)
        rows = np.flatnonzero(self.cluster.feasible(self.pod, columns=self.columns))
        for row in set(range(len(self.nodes))) - set(rows.tolist()):
            self._refuse(row)
        for row in rows.tolist():
            self.nodes[row].update(self._reserve(row))
        result: Answer = {"nodes": self.nodes}
        policy = self.case.policy
        if policy is GpuPolicy.RANDOM:
            if rows.size:
                result["node_any_of"] = [self.cluster.names[row] for row in rows]
        elif policy is not None and rows.size:
            result.update(self._choose(policy, rows))
        return result

    def _frag(self, state: CardState) -> Answer:
        by = _milli([state], self.case, columns=self.columns)[0]
        return {"amount": fragment(by), "by": by}

    def _refuse(self, row: int) -> None:
        reasons = self.cluster.insufficient(row, self.pod)
        if reasons:
            self.nodes[row].update(refused_by="NodeResourcesFit", reasons=reasons)
        else:
            self.nodes[row]["refused_by"] = "Open-Gpu-Share"

    def _reserve(self, row: int) -> Answer:
        if self.request.num > 1 and self.request.milli <= 0:
            return {"reserve": "panic_after"}
        if self.request.is_several_shares and self.request.prescribed is None:
            return {"reserve": "panic"}
        choices = candidate_cards(self.states[row], self.request, self.case.choice)
        if not choices:
            return {"reserve": "error"}
        if self.case.options.gpu_sel == "random" and self.request.is_share:
            return {"cards_any_of": [card for (card,) in choices]}
        found: Answer = {"cards": choices[0]}
        if self.case.typical is not None:
            # Nodes count no CPU for a pod without request, while policies count 100 milli.
            counted = replace(self.request, cpu_milli=self.pod.cpu)
            after = self.states[row].with_pod(counted, choices[0])
            found["frag_after"] = self._frag(after)
        return found

    def _choose(self, policy: GpuPolicy, rows: Ints) -> Answer:
        cards = GpuCardColumns.of([self.states[row] for row in rows])
        scores = attempt_scores(policy, cards, self.request, self.case.choice, columns=self.columns)
        for place, row in enumerate(rows.tolist()):
            self.nodes[row]["score"] = int(scores.raw[place])
            if not scores.is_refused.any():
                self.nodes[row]["normalized"] = int(scores.normalized[place])
            if scores.is_refused[place] or scores.is_out_of_range[place]:
                self.nodes[row]["score_error"] = True
        if scores.fails:
            return {"error": True}
        best = rows[scores.normalized == scores.normalized.max()]
        names = [self.cluster.names[row] for row in best]
        chosen = self.nodes[self.cluster.names.index(min(names))]
        result: Answer = {"best": names, "chosen": chosen["name"]}
        for key in ("cards", "cards_any_of", "reserve"):
            if key in chosen:
                result[f"chosen_{key}"] = chosen[key]
        return result
