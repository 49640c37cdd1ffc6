"""The deletion cost of a pod, from its annotation.

Source: kubernetes v1.36, pkg/apis/core/helper/helpers.go: GetDeletionCostFromPodAnnotations.
"""

from __future__ import annotations

from collections.abc import Mapping

from stowplan.apis.machinery.strconv import int_or_none

ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"


def deletion_cost(annotations: Mapping[str, str]) -> int | None:
    """The cost, 0 without the annotation; None if it is not a 32-bit integer, or has a leading plus
    sign or zero."""
    text = annotations.get(ANNOTATION, "0")
    if text != "0" and text[:1] in ("", "+", "0"):
        return None
    return int_or_none(text, 32)
