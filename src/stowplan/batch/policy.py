"""Checks of the contract that policies and actions keep.

A policy is made anew for every session, from its arguments. It registers functions with
`session.hooks` (tiers.Hooks.register says which kinds there are and what they are given) and, to
follow what is given and taken, handlers with `session.working.handlers`.
"""

from __future__ import annotations

from stowplan.batch.answers import takes
from stowplan.batch.session import Action, Policy
from stowplan.framework.problems import ContractError

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
