"""Run limits: how long a pod runs by its annotation, and at most by its `activeDeadlineSeconds`."""

from __future__ import annotations

import math

from stowplan.objects.pod import Pod

RUN_ANNOTATION = "stowplan.dev/run-seconds"
"""Run time of a pod after its start, in seconds, or `forever`."""
FOREVER = "forever"
RUN_MAX = 10**10
RUN_EXPECTED = f"seconds from 0 to {RUN_MAX}, or {FOREVER}"


def annotated_run_s(pod: Pod) -> float | None:
    """Run time by the annotation, in seconds; infinity for `forever`, None without the annotation.

    Raises ValueError with the text of an invalid annotation.
    """
    text = pod.metadata.annotations.get(RUN_ANNOTATION)
    if text is None:
        return None
    if text == FOREVER:
        return math.inf
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds <= RUN_MAX:
        raise ValueError(repr(text))
    return seconds


def run_limit_s(pod: Pod) -> float:
    """The most seconds that a pod runs: the smaller of its annotation and its
    `activeDeadlineSeconds`; infinity without either, and where the annotation is invalid."""
    try:
        annotated = annotated_run_s(pod)
    except ValueError:
        # An invalid annotation limits nothing; the kubelet would not stop the pod either.
        annotated = None
    deadline = pod.spec.active_deadline_seconds
    return min(
        math.inf if annotated is None else annotated,
        math.inf if deadline is None or deadline < 0 else float(deadline),
    )
