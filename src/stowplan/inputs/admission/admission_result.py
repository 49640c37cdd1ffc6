"""Admitted: the pods that the API server would create, and those that it would refuse."""

from __future__ import annotations

import msgspec

from stowplan.objects.pod import Pod


class AdmissionResult(msgspec.Struct):
    """Pods after admission. refused: pod -> the API server's text."""

    pods: list[Pod]
    refused: dict[str, str] = {}
    notes: list[str] = []
