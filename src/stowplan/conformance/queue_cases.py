"""Queue cases: a script of operations on the scheduling queue, with objects."""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.assembly.plugin_kinds import VOLUME_AND_DEVICE_KINDS
from stowplan.conformance.case_lines import case_reader
from stowplan.inputs.input_error import mismatch
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.meta import NamespacedObject, Object, Value
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.workload import Namespace
from stowplan.queue import QueueOptions

_PLAIN: tuple[type[Object], ...] = (Pod, Node, Namespace, *VOLUME_AND_DEVICE_KINDS)
_KINDS = {kind.__name__: kind for kind in _PLAIN}
# No plugin reads PodGroups, but scripts may contain them.
_KINDS["PodGroup"] = NamespacedObject


class QueueCaseConfig(Value, frozen=True):
    """Queue options of a case."""

    pod_initial_backoff_seconds: float = 1
    pod_max_backoff_seconds: float = 10
    pod_max_in_unschedulable_pods_duration_seconds: float = 300
    pop_from_backoff_q: bool = msgspec.field(default=True, name="popFromBackoffQ")

    def options(self) -> QueueOptions:
        """The options for the queue."""
        return QueueOptions(
            initial_backoff_s=self.pod_initial_backoff_seconds,
            max_backoff_s=self.pod_max_backoff_seconds,
            max_in_unschedulable_pods_s=self.pod_max_in_unschedulable_pods_duration_seconds,
            pop_from_backoff=self.pop_from_backoff_q,
        )


class CaseNomination(Value, frozen=True):
    """Nomination of an attempt. mode: override, noop or nil."""

    mode: str = "nil"
    node: str = ""

    @property
    def override(self) -> str | None:
        """The node; None: use the pod's status."""
        return self.node if self.mode == "override" else None


class QueueOperation(Value, frozen=True, gc=True):
    """One operation; the fields used depend on `op`. ms: clock advance before it."""

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
    """A script with its initial objects."""

    id: str
    ops: tuple[QueueOperation, ...]
    config: QueueCaseConfig = QueueCaseConfig()
    objects: dict[str, tuple[dict[str, Any], ...]] = {}


read_case = case_reader(QueueCase)


def value_of(kind: str, tree: dict[str, Any] | None) -> Object:
    """A tree decoded as an object of a kind; raises ValueError."""
    if kind not in _KINDS:
        text = mismatch(repr(kind), f"one of {', '.join(_KINDS)}")
        raise ValueError(f"kind: {text}")
    return convert(tree, _KINDS[kind])
