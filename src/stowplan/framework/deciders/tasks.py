"""Statuses of tasks, and the job of a pod, as every session decider counts them.

Source: kube-batch v0.5, api/types.go, api/helpers.go.
"""

from __future__ import annotations

import enum

from stowplan.objects.pod import Pod
from stowplan.objects.podgroup import GROUP_ANNOTATIONS

PRIORITY_UNSET = 1
"""Priority of a pod without a priority."""


class TaskStatus(enum.IntEnum):
    """Status of a task; Allocated and Pipelined exist within a session only.

    Gated: the pod still has scheduling gates. Until they are removed it requests nothing and does
    not count for its gang.
    """

    PENDING = enum.auto()
    ALLOCATED = enum.auto()
    PIPELINED = enum.auto()
    BINDING = enum.auto()
    BOUND = enum.auto()
    RUNNING = enum.auto()
    RELEASING = enum.auto()
    SUCCEEDED = enum.auto()
    FAILED = enum.auto()
    UNKNOWN = enum.auto()
    GATED = enum.auto()

    # Tasks are kept by status, and Enum's own hash is a Python function.
    __hash__ = int.__hash__

    @property
    def title(self) -> str:
        """Name of the status in the original's source."""
        return self.name.capitalize()


OCCUPYING = frozenset(
    {TaskStatus.BOUND, TaskStatus.BINDING, TaskStatus.RUNNING, TaskStatus.ALLOCATED}
)
"""Statuses in which a task counts as allocated."""

TERMINATED = frozenset({TaskStatus.SUCCEEDED, TaskStatus.FAILED})
READY = OCCUPYING | {TaskStatus.SUCCEEDED}
VALID = READY | {TaskStatus.PIPELINED, TaskStatus.PENDING}


def status_of(pod: Pod) -> TaskStatus:
    """Status derived from the pod's phase, node and deletion."""
    phase = pod.status.phase
    if phase in ("Running", "Pending"):
        if pod.metadata.deletion_timestamp is not None:
            return TaskStatus.RELEASING
        if phase == "Running":
            return TaskStatus.RUNNING
        if pod.node_name:
            return TaskStatus.BOUND
        return TaskStatus.GATED if pod.spec.scheduling_gates else TaskStatus.PENDING
    if phase == "Succeeded":
        return TaskStatus.SUCCEEDED
    return TaskStatus.FAILED if phase == "Failed" else TaskStatus.UNKNOWN


def group_of(pod: Pod) -> str:
    """Id of the job that the pod's annotation names, "" for none."""
    annotations = pod.metadata.annotations
    for annotation in GROUP_ANNOTATIONS:
        name = annotations.get(annotation)
        if name:
            return f"{pod.namespace}/{name}"
    return ""
