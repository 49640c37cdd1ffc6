"""Policy: what has something to say about jobs, tasks, queues or nodes in a session.

A policy is made anew for every session, from its arguments. It registers functions with
`session.hooks` (tiers.Hooks.register says which kinds there are and what they are given) and, to
follow what is given and taken, handlers with `session.working.handlers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from stowplan.batch.answers import takes
from stowplan.framework.problems import ContractError

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
        where = f"class {type(self).__module__}.{type(self).__qualname__}"
        raise ContractError(f"{where}: defines no run; wanted `def run(self, session)`")


MOMENTS = ("on_open", "on_start", "on_close")


def check_part(part: type[Policy] | type[Action], where: str) -> None:
    """Raise ContractError where sessions could not make or call a policy, or an action."""
    n_given = 0 if issubclass(part, Action) else 1
    if not takes(part, n_given):
        wanted = "nothing" if issubclass(part, Action) else "its arguments"
        raise ContractError(f"{where}: cannot be made; wanted a class that is given {wanted}")
    if issubclass(part, Action) and part.run is Action.run:
        raise ContractError(f"{where}: defines no run; wanted `def run(self, session)`")
    for name in ("run",) if issubclass(part, Action) else MOMENTS:
        # Without the instance, which is the first of two.
        if not takes(getattr(part, name), 2):
            raise ContractError(f"{where}: {name}() cannot be called with (session)")
