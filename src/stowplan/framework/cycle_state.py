"""CycleState: data that plugins pass between extension points of one attempt."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from types import MappingProxyType
from typing import Any, TypeVar

from stowplan.objects.devices.card_reservation import CardReservations
from stowplan.objects.devices.node_lock import NodeLock
from stowplan.objects.kai.bind_request import KaiBindRequestSpec
from stowplan.objects.pod import Pod

T = TypeVar("T")

NO_TIMES: Mapping[str, str] = MappingProxyType({})


class MissingState(LookupError):
    """A plugin reads a key that was not written: its earlier extension point did not run."""


REFUSED_ALONE = "refused alone"
"""Key that a plugin writes in PreFilter where objects of the pod itself count: a refusal then says
nothing about other pods of its template."""


class CycleState:
    """Values by key, for one attempt of one pod.

    A plugin writes in PreFilter or PreScore what its later extension points read. Use the plugin's
    name as the key. A value that AddPod or RemovePod changes needs a `clone()` method: preemption
    works on clones. Values without one are shared between clones and must not be changed.

    to_activate: pods by uid to move to the active queue when this pod passes Permit, and again when
    it is bound. binding_annotations: written by Reserve, Permit or PreBind; the binding carries
    them to the pod in the write that sets its node. binding_times: annotation -> `s` or `ns`, whose
    value is the time of the binding in that unit since 1970; replaced, not changed. binding_lock:
    of the node, taken before the binding is sent. binding_cards: of the node, reserved before it is
    sent. binding_request: carried out by KAI's binder in place of the binding. Plugins that bind by
    `perform`, and extenders, send none of these. group_values: what the plugins keep for the cycle
    of a group; None for a pod that is attempted alone, and once the member is to be bound.
    row_signatures: plugin -> signature, written by PreFilter where the plugin's Filter reads nodes
    only for this pod; pods with equal ones get the same verdicts.
    """

    __slots__ = (
        "_values",
        "binding_annotations",
        "binding_cards",
        "binding_lock",
        "binding_request",
        "binding_times",
        "group_values",
        "row_signatures",
        "skip_filter",
        "skip_pre_bind",
        "skip_score",
        "to_activate",
    )

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self.skip_filter: set[str] = set()
        self.skip_score: set[str] = set()
        self.skip_pre_bind: set[str] = set()
        self.to_activate: dict[str, Pod] = {}
        self.binding_annotations: dict[str, str] = {}
        self.binding_times: Mapping[str, str] = NO_TIMES
        self.binding_lock: NodeLock | None = None
        self.binding_cards: CardReservations | None = None
        self.binding_request: KaiBindRequestSpec | None = None
        self.group_values: dict[str, Any] | None = None
        self.row_signatures: dict[str, Hashable] = {}

    @property
    def is_group_cycle(self) -> bool:
        """True where the pod is tried with its group, and what is reserved is given back."""
        return self.group_values is not None

    def write(self, key: str, value: object) -> None:
        """Store `value` under `key`, replacing the previous one."""
        self._values[key] = value

    def read(self, key: str, kind: type[T]) -> T:
        """The value under `key`.

        Raises MissingState, a LookupError, when nothing was written (usually because PreFilter did
        not run), and TypeError when it is not a `kind`.
        """
        if key not in self._values:
            raise MissingState(f"cycle state has no {key!r}; it has {sorted(self._values)}")
        value = self._values[key]
        if not isinstance(value, kind):
            raise TypeError(
                f"cycle state {key!r} is a {type(value).__name__}; expected {kind.__name__}"
            )
        return value

    def find(self, key: str) -> Any:
        """The value under `key`, None when nothing was written."""
        return self._values.get(key)

    def clone(self) -> CycleState:
        """A copy whose values can change without changing this one."""
        copy = CycleState()
        copy._values = {
            key: value.clone() if hasattr(value, "clone") else value
            for key, value in self._values.items()
        }
        copy.skip_filter = set(self.skip_filter)
        copy.skip_score = set(self.skip_score)
        copy.skip_pre_bind = set(self.skip_pre_bind)
        copy.to_activate = dict(self.to_activate)
        copy.binding_annotations = dict(self.binding_annotations)
        copy.binding_times = self.binding_times
        copy.binding_lock = self.binding_lock
        copy.binding_cards = self.binding_cards
        copy.binding_request = self.binding_request
        copy.group_values = self.group_values
        copy.row_signatures = self.row_signatures
        return copy
