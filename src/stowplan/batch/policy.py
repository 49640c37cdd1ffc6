"""Policy: what has something to say about jobs, tasks, queues or nodes in a session.

A policy is made anew for every session, from its arguments. It registers functions with
`session.hooks` (tiers.Hooks.register says which kinds there are and what they are given) and, to
follow what is given and taken, handlers with `session.working.handlers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from stowplan.batch.session import Session


class Policy:
    """Base of policies; a subclass overrides what it needs. name: as configurations have it."""

    name = ""

    def __init__(self, arguments: Mapping[str, str]) -> None:
        self.arguments = arguments

    def on_open(self, session: Session) -> None:
        """Register. All jobs are there, also those that are about to be found invalid."""

    def on_start(self, session: Session) -> None:
        """Invalid jobs have gone to `session.invalid`; shares can be counted."""

    def on_close(self, session: Session) -> None:
        """All actions have run."""


class Action:
    """Base of actions: one step of a session. name: as configurations have it."""

    name = ""

    def run(self, session: Session) -> None:
        """Act on the session. A job that is gone from `session.jobs` is not to be touched."""
        raise NotImplementedError
