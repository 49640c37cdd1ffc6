"""Admission result: pods that the API server would create, and those that it would reject."""

from __future__ import annotations

import msgspec

from stowplan.objects.pod import Pod


class AdmissionResult(msgspec.Struct):
    """Pods after admission. refused: pod -> the API server's message. as_read: pod -> the pod
    before it got defaults of LimitRanges."""

    pods: list[Pod]
    refused: dict[str, str] = {}
    notes: list[str] = []
    as_read: dict[str, Pod] = {}
