"""The cost of deleting a pod, which its annotation states.

Source: kubernetes v1.36, pkg/apis/core/helper/helpers.go: GetDeletionCostFromPodAnnotations.
"""

from __future__ import annotations

from collections.abc import Mapping

from stowplan.apis.machinery.strconv import int_or_none

ANNOTATION = "controller.kubernetes.io/pod-deletion-cost"


def deletion_cost(annotations: Mapping[str, str]) -> int | None:
    """The cost, 0 without the annotation; None if it is no 32-bit integer, or begins with a plus
    sign or a zero that nothing asks for."""
    text = annotations.get(ANNOTATION, "0")
    if text != "0" and text[:1] in ("", "+", "0"):
        return None
    return int_or_none(text, 32)
