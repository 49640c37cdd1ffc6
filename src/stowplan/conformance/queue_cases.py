"""Queue scripts as they are written: a case, its operations, and the objects that they bring."""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.conformance.case_lines import WRAPPED
from stowplan.objects.device import DeviceClass, ResourceClaim, ResourceSlice
from stowplan.objects.encoding.json_codec import convert, decode
from stowplan.objects.meta import NamespacedObject, Object, Value
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
    VolumeAttachment,
)
from stowplan.objects.workload import Namespace
from stowplan.queue import QueueOptions

_KINDS: dict[str, type[Object]] = {
    kind.__name__: kind
    for kind in (
        Pod,
        Node,
        Namespace,
        PersistentVolume,
        PersistentVolumeClaim,
        StorageClass,
        CSINode,
        CSIDriver,
        CSIStorageCapacity,
        VolumeAttachment,
        ResourceClaim,
        ResourceSlice,
        DeviceClass,
    )
}
# No rule reads pod groups, but a script may tell of them.
_KINDS["PodGroup"] = NamespacedObject


class QueueCaseConfig(Value, frozen=True):
    """The queue's options, as the script has them."""

    pod_initial_backoff_seconds: float = 1
    pod_max_backoff_seconds: float = 10
    pod_max_in_unschedulable_pods_duration_seconds: float = 300
    pop_from_backoff_q: bool = msgspec.field(default=True, name="popFromBackoffQ")

    def options(self) -> QueueOptions:
        """The same for the queue."""
        return QueueOptions(
            initial_backoff_s=self.pod_initial_backoff_seconds,
            max_backoff_s=self.pod_max_backoff_seconds,
            max_in_unschedulable_pods_s=self.pod_max_in_unschedulable_pods_duration_seconds,
            pop_from_backoff=self.pop_from_backoff_q,
        )


class CaseNomination(Value, frozen=True):
    """What an attempt wants nominated. mode: override, noop or nil."""

    mode: str = "nil"
    node: str = ""

    @property
    def told(self) -> str | None:
        """The node, None to go by the pod's status."""
        return self.node if self.mode == "override" else None


class QueueOperation(Value, frozen=True, gc=True):
    """One operation; which fields count depends on `op`. ms: the clock is moved first."""

    op: str
    ms: int = 0
    pod: str = ""
    uid: str = ""
    pods: tuple[str, ...] = ()
    object: dict[str, Any] | None = None
    handler: bool = False
    keep: bool = False
    unschedulable_plugins: frozenset[str] = frozenset()
    pending_plugins: frozenset[str] = frozenset()
    nominate: CaseNomination = CaseNomination()
    event: str = ""
    kind: str = ""
    old: dict[str, Any] | None = None
    new: dict[str, Any] | None = None
    priority_le: int | None = msgspec.field(default=None, name="priorityLE")
    node: str = ""
    value: bool = False


class QueueCase(Value, frozen=True, gc=True):
    """A script, with the objects that are there before it starts."""

    id: str
    ops: tuple[QueueOperation, ...]
    config: QueueCaseConfig = QueueCaseConfig()
    objects: dict[str, tuple[dict[str, Any], ...]] = {}


class QueueLine(msgspec.Struct):
    """A line of input: a case under `case`, as in the recorded answers."""

    case: QueueCase


def read_case(line: bytes) -> QueueCase:
    """The case on a line; raises DecodeError."""
    if WRAPPED.search(line):
        return decode(line, QueueLine).case
    return decode(line, QueueCase)


def value_of(kind: str, tree: dict[str, Any] | None) -> Object:
    """The object of a kind that a tree stands for; raises ValueError."""
    if kind not in _KINDS:
        raise ValueError(f"kind: got {kind!r}, wanted one of {', '.join(_KINDS)}")
    return convert(tree, _KINDS[kind])
