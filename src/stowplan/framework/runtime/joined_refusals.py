"""Joins the rejections of a node, for profiles that run all filters.

Source: kube-scheduler v1.13, scheduler/core podFitsOnNode with alwaysCheckAllPredicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from stowplan.framework.node_to_status import PASSED, NodeToStatus, PluginVerdicts, as_refusal
from stowplan.framework.status import Code, Status


def join_refusals(verdicts: NodeToStatus, apart: Mapping[str, PluginVerdicts]) -> None:
    """Replace the first rejection of each row by all of them in one status.

    apart: the verdicts of every filter for the same rows, in call order. An error ends a node's
    list. Differs: where pods are nominated to a node only the first rejection is reported.
    """
    places = np.flatnonzero(verdicts.by != PASSED)
    if places.size == 0:
        return
    codes = np.array([answers.codes[places] for answers in apart.values()])
    kinds, which = np.unique(codes, axis=1, return_inverse=True)
    statuses = [
        join_statuses(
            answers.explain(code).by(name)
            for (name, answers), code in zip(apart.items(), kind.tolist(), strict=True)
            if code != 0
        )
        for kind in kinds.T
    ]
    verdicts.overrule_all(places, which.reshape(-1).astype(np.int64), statuses)


def join_statuses(refusals: Iterable[Status]) -> Status:
    """One status from several: the first error, or all reasons; unresolvable if one of them is.

    Its plugin is that of the first; the list must not be empty.
    """
    found: list[Status] = []
    for refusal in map(as_refusal, refusals):
        if not refusal.is_rejected:
            return refusal
        found.append(refusal)
    reasons = tuple(reason for refusal in found for reason in refusal.reasons)
    hopeless = any(refusal.code == Code.UNSCHEDULABLE_AND_UNRESOLVABLE for refusal in found)
    code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE if hopeless else Code.UNSCHEDULABLE
    return Status(code, reasons, found[0].plugin)
