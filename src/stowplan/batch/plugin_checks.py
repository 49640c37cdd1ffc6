"""Contract checks of session plugins and actions.

A session plugin is created for every session, from its arguments. It registers functions with
`session.hooks` (see tiers.Hooks.register for their kinds and arguments) and, to follow allocations,
handlers with `session.state.handlers`.
"""

from __future__ import annotations

from stowplan.batch.hook_contracts import accepts_arguments
from stowplan.batch.session import SessionAction, SessionPlugin
from stowplan.framework.problems import ContractError

SESSION_CALLBACKS = ("on_open", "on_start", "on_close")


def check_part(part: type[SessionPlugin] | type[SessionAction], where: str) -> None:
    """Raise ContractError if sessions could not create or call a session plugin or action."""
    n_given = 0 if issubclass(part, SessionAction) else 1
    if not accepts_arguments(part, n_given):
        expected = "nothing" if issubclass(part, SessionAction) else "its arguments"
        raise ContractError(f"{where}: cannot be created: expected a class that takes {expected}")
    if issubclass(part, SessionAction) and part.run is SessionAction.run:
        raise ContractError(f"{where}: method run is missing: expected `def run(self, session)`")
    for name in ("run",) if issubclass(part, SessionAction) else SESSION_CALLBACKS:
        # Without the instance, which is the first of two.
        if not accepts_arguments(getattr(part, name), 2):
            raise ContractError(f"{where}: {name}() cannot be called with (session)")
