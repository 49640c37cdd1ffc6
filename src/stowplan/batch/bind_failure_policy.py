"""BindFailurePolicy: how to handle a gang with a member whose bind fails."""

from __future__ import annotations

import msgspec

KEEP, RELEASE = "Keep", "Release"


class BindFailurePolicy(msgspec.Struct, frozen=True):
    """Handling of failed binds.

    failures_max: number of consecutive failures of one member after which its group no longer goes
    first. then: "Keep" leaves bound members in place and keeps trying; "Release" evicts them if
    they are too few to run, which frees their resources.
    """

    failures_max: int = 5
    then: str = KEEP
