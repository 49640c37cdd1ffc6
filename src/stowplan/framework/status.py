"""Status: what a plugin answers. Expected refusals are values, never exceptions."""

from __future__ import annotations

from enum import IntEnum

import msgspec


class Code(IntEnum):
    """The kinds of answer, as in the original."""

    SUCCESS = 0
    ERROR = 1
    UNSCHEDULABLE = 2
    UNSCHEDULABLE_AND_UNRESOLVABLE = 3
    WAIT = 4
    SKIP = 5
    PENDING = 6

    @property
    def title(self) -> str:
        """The original's spelling, `UnschedulableAndUnresolvable` for one."""
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
    """An answer: its code, the reasons that users read, and who gave it.

    `plugin` is filled in by the runtime. Two statuses with equal content are equal.
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
        """The reasons, joined as the original joins them."""
        return ", ".join(self.reasons)

    def by(self, plugin: str) -> Status:
        """The same answer, given by `plugin` unless somebody is named already."""
        return self if self.plugin else msgspec.structs.replace(self, plugin=plugin)


OK = Status()
SKIP = Status(Code.SKIP)


def unschedulable(*reasons: str) -> Status:
    """A refusal that evicting pods may resolve."""
    return Status(Code.UNSCHEDULABLE, reasons)


def unresolvable(*reasons: str) -> Status:
    """A refusal that no eviction can resolve."""
    return Status(Code.UNSCHEDULABLE_AND_UNRESOLVABLE, reasons)


def error(*reasons: str) -> Status:
    """The plugin itself failed; the attempt ends and is tried again."""
    return Status(Code.ERROR, reasons)
