"""Status: the result of a plugin. Expected rejections are values, never exceptions."""

from __future__ import annotations

from enum import IntEnum

import msgspec


class Code(IntEnum):
    """Codes of results, as in the original."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    WAIT = 4
    SKIP = 5
    PENDING = 6

    @property
    def title(self) -> str:
        """The original's name, such as `UnschedulableAndUnresolvable`."""
        return _TITLES[self]


_TITLES = {
    Code.SUCCESS: "Success",
    Code.ERROR: "Error",
    Code.UNSCHEDULABLE: "Unschedulable",
    Code.UNSCHEDULABLE_AND_UNRESOLVABLE: "UnschedulableAndUnresolvable",
    Code.WAIT: "Wait",
    Code.SKIP: "Skip",
    Code.PENDING: "Pending",
}

REJECTIONS = frozenset({Code.UNSCHEDULABLE, Code.UNSCHEDULABLE_AND_UNRESOLVABLE, Code.PENDING})


class Status(msgspec.Struct, frozen=True):
    """A result: its code, the reasons that users read, and its plugin.

    `plugin` is filled in by the runtime. Statuses with equal content are equal.
    """

    code: Code = Code.SUCCESS
    reasons: tuple[str, ...] = ()
    plugin: str = ""

    @property
    def is_success(self) -> bool:
        """True for Success."""
        return self.code == Code.SUCCESS

    @property
    def is_skip(self) -> bool:
        """True for Skip."""
        return self.code == Code.SKIP

    @property
    def is_rejected(self) -> bool:
        """True for Unschedulable, UnschedulableAndUnresolvable and Pending."""
        return self.code in REJECTIONS

    @property
    def message(self) -> str:
        """The reasons, joined as in the original."""
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> Status:
        """The same status from `plugin`, unless a plugin is set already."""
        return self if self.plugin else msgspec.structs.replace(self, plugin=plugin)


OK = Status()
SKIP = Status(Code.SKIP)


def unschedulable(*reasons: str) -> Status:
    """A rejection that evicting pods may resolve."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """A rejection that no eviction can resolve."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


def error(*reasons: str) -> Status:
    """The plugin failed; the attempt ends and the pod is retried."""
    return Status(Code.ERROR, reasons)
