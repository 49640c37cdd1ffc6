"""All refusals of a node as one, for profiles that ask every filter.

Source: Kubernetes v1.13, scheduler/core podFitsOnNode with alwaysCheckAllPredicates.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np

from stowplan.framework.node_to_status import PASSED, NodeToStatus, PluginVerdicts, as_refusal
from stowplan.framework.status import Code, Status


def join_refusals(verdicts: NodeToStatus, apart: Mapping[str, PluginVerdicts]) -> None:
    """Replace the first refusal of each row with all of them in one.

    apart: what every filter says of the same rows, in the order of their calls. An error ends a
    node's list, and counts. Differs: where pods are nominated to a node only the first refusal is
    named.
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
    """One status of several: the first error, or all reasons; unresolvable where one of them is.

    It is given by the first of those who refuse; there must be one.
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
