"""From configuration files and plugins of one's own to what decides: profiles and sessions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec

from stowplan import config
from stowplan.assembly.batch import ACTIONS, POLICIES, known_names, rules_for, session_options
from stowplan.assembly.build import registered
from stowplan.assembly.plugin_files import batch_parts
from stowplan.assembly.rules_today import session_framework
from stowplan.batch import Compat, SessionOptions
from stowplan.batch.policy import Action, Policy
from stowplan.batch.rules import Rules
from stowplan.batch.working import Working
from stowplan.config.batch import BatchConfiguration
from stowplan.framework import ContractError, Framework, Registry, Snapshot


class Text(NamedTuple):
    """A configuration file that has been read. source: named in errors."""

    text: str | bytes
    source: str


class Deciders(msgspec.Struct, frozen=True):
    """A configuration and the parts that it names.

    registry: of the rules. actions, policies: one's own, by name.
    """

    configuration: config.Configuration
    registry: Registry
    actions: dict[str, type[Action]]
    policies: dict[str, type[Policy]]
    compat: Compat = Compat()

    @property
    def batch(self) -> BatchConfiguration | None:
        """What sessions decide, and how; None where they decide nothing."""
        return self.configuration.batch

    def framework(self) -> Framework:
        """What the rules of sessions are asked through: today's, plugins of one's own beside."""
        own = tuple(entry.plugin for entry in self.registry.values() if not entry.in_tree)
        return session_framework(own=own)

    def session_options(self, snapshot: Callable[[], Snapshot] | None = None) -> SessionOptions:
        """What every session is opened with; `batch` must not be None.

        snapshot: gives nodes and pods as they are when a session opens; None makes a table each.
        """
        assert self.batch is not None, "no sessions are configured"
        rules: Callable[[Working], Rules]
        if self.compat.rules_of_1_13:
            rules = rules_for(self.compat)
        else:
            rules = rules_for(self.compat, self.framework(), snapshot)
        return session_options(self.batch, self.compat, rules, self.actions, self.policies)


def deciders_of(
    files: Sequence[Text],
    plugins: Iterable[Callable[..., Any]] = (),
    compat: Compat | None = None,
) -> Deciders:
    """What the files come to, none of them: the default configuration.

    One may have profiles (KubeSchedulerConfiguration or Policy) and one sessions (actions and
    tiers). Raises ConfigError and ContractError.
    """
    texts = " ".join(_decoded(file.text) for file in files)
    given = tuple(plugins)
    actions, policies = batch_parts(given, texts)
    for name in (*(actions.keys() & ACTIONS.keys()), *(policies.keys() & POLICIES.keys())):
        own = actions.get(name) or policies[name]
        where = f"class {own.__module__}.{own.__qualname__}"
        raise ContractError(f"{where}: the name {name!r} is taken; wanted one that is free")
    full, defaults = registered(given, texts)
    if not files:
        return Deciders(config.default(full, defaults), full, actions, policies, compat or Compat())
    known = known_names(compat, actions, policies)
    read = [config.parse(file.text, file.source, full, defaults, known) for file in files]
    return Deciders(config.merged(read), full, actions, policies, compat or Compat())


def _decoded(text: str | bytes) -> str:
    return text if isinstance(text, str) else text.decode(errors="replace")
