"""Upkeep: what becomes of a gang of which a member cannot be bound."""

from __future__ import annotations

import msgspec

KEEP, RELEASE = "Keep", "Release"


class BindFailurePolicy(msgspec.Struct, frozen=True):
    """failures_max: after so many refusals of one member in a row the group goes first no more.
    then: "Keep" leaves the members that are bound where they are, and goes on trying; "Release"
    evicts them if they are too few to run, so that their room is somebody's.
    """

    failures_max: int = 5
    then: str = KEEP
