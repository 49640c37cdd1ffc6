"""Deciders: profiles and sessions, built from configuration files and custom plugins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stowplan import config
from stowplan.assembly.build import decoded, registered, scheduler_for
from stowplan.assembly.in_tree import DEFAULT_PLUGINS
from stowplan.assembly.plugin_files import batch_parts
from stowplan.assembly.sessions.profile_rules import session_framework
from stowplan.assembly.sessions.session_config import (
    ACTIONS,
    SESSION_PLUGINS,
    known_names,
    rules_for,
    session_options,
)
from stowplan.batch import Compat, SessionOptions
from stowplan.batch.bind_failure_policy import BindFailurePolicy
from stowplan.batch.decider import BatchDecider, BatchPlan
from stowplan.batch.plugin_checks import check_part
from stowplan.batch.session import SessionAction, SessionPlugin
from stowplan.batch.session_rules import SessionRules
from stowplan.batch.state.session_state import SessionState
from stowplan.config.session_configuration import BatchConfiguration
from stowplan.framework import (
    ConfigError,
    ContractError,
    FeatureGates,
    Framework,
    Problem,
    Registry,
    Snapshot,
)
from stowplan.framework.handle_state import HandleState
from stowplan.framework.metrics import Metrics
from stowplan.framework.plugin_calls import duplicate_name
from stowplan.scheduler import Scheduler, SchedulerOptions


class ConfigText(NamedTuple):
    """Text of a configuration file. source: its name in errors."""

    text: str | bytes
    source: str


class Deciders(msgspec.Struct, frozen=True):
    """A configuration and its custom parts.

    registry: of the scheduling plugins. actions, session_plugins: custom session actions and
    session plugins, by name.
    """

    configuration: config.Configuration
    registry: Registry
    actions: dict[str, type[SessionAction]]
    session_plugins: dict[str, type[SessionPlugin]]
    compat: Compat = Compat()

    @property
    def batch(self) -> BatchConfiguration | None:
        """Configuration of sessions; None if there are none."""
        return self.configuration.batch

    def framework(self, shared: HandleState | None = None) -> Framework:
        """Framework of the session rules: the current ones plus custom plugins."""
        own = tuple(entry.plugin for entry in self.registry.values() if not entry.in_tree)
        return session_framework(own=own, shared=shared)

    def session_options(
        self, snapshot: Callable[[], Snapshot] | None = None, framework: Framework | None = None
    ) -> SessionOptions:
        """Options of every session; `batch` must not be None.

        snapshot: returns nodes and pods when a session opens; None builds a table per session.
        """
        assert self.batch is not None, "no sessions are configured"
        rules: Callable[[SessionState], SessionRules]
        if self.compat.rules_of_1_13:
            rules = rules_for(self.compat)
        else:
            rules = rules_for(self.compat, framework or self.framework(), snapshot)
        return session_options(self.batch, self.compat, rules, self.actions, self.session_plugins)

    def session_decider(
        self,
        shared: HandleState | None = None,
        rng: np.random.Generator | None = None,
        metrics: Metrics | None = None,
    ) -> BatchDecider:
        """Build the session decider; `batch` must not be None.

        shared: handle state shared with the profiles. rng: breaks ties; None takes the first node.
        """
        framework = self.framework(shared)
        made: list[BatchDecider] = []

        def snapshot() -> Snapshot:
            return made[0].snapshot()

        def reread(text: str, source: str) -> BatchPlan:
            return self.reread(text, source)._plan(snapshot, framework)

        made.append(BatchDecider(self._plan(snapshot, framework), framework, reread, rng, metrics))
        return made[0]

    def reread(self, text: str, source: str) -> Deciders:
        """The same parts with another text; raises ConfigError, also if it configures no
        sessions."""
        known = known_names(self.compat, self.actions, self.session_plugins)
        read = config.parse(text, source, self.registry, DEFAULT_PLUGINS, known)
        if read.batch is None:
            problem = Problem("actions", "no sessions", "actions and tiers, or a block `batch`")
            raise ConfigError(source, [problem])
        return msgspec.structs.replace(self, configuration=read)

    def _plan(self, snapshot: Callable[[], Snapshot], framework: Framework) -> BatchPlan:
        batch = self.batch
        assert batch is not None, "no sessions are configured"
        return BatchPlan(
            batch.scheduler_names,
            batch.default_queue,
            batch.period_s,
            batch.uses_priority_classes,
            self.session_options(snapshot, framework),
            BindFailurePolicy(batch.bind_failures_max, batch.bind_failure_policy),
        )

    def scheduler(
        self,
        gates: FeatureGates | None = None,
        rng: np.random.Generator | None = None,
        options: SchedulerOptions | None = None,
        engine: str = "auto",
        metrics: Metrics | None = None,
    ) -> Scheduler:
        """Build a scheduler with profiles, sessions or both; see `scheduler_for`."""

        def sessions(shared: HandleState) -> BatchDecider:
            # A separate generator, so that sessions do not influence the tie-breaks of profiles.
            own = None if rng is None else rng.spawn(1)[0]
            return self.session_decider(shared, own, metrics)

        return scheduler_for(
            self.configuration,
            self.registry,
            gates,
            rng,
            options,
            engine,
            None if self.batch is None else sessions,
            metrics,
        )


def deciders_of(
    files: Sequence[ConfigText],
    plugins: Iterable[Callable[..., Any]] = (),
    compat: Compat | None = None,
) -> Deciders:
    """Read configuration files; without any, the default configuration.

    One file may hold profiles (KubeSchedulerConfiguration or Policy) and one sessions (actions and
    tiers). Raises ConfigError and ContractError.
    """
    texts = " ".join(decoded(file.text) for file in files)
    given = tuple(plugins)
    actions, session_plugins = batch_parts(given, texts)
    for name in (
        *(actions.keys() & ACTIONS.keys()),
        *(session_plugins.keys() & SESSION_PLUGINS.keys()),
    ):
        own = actions.get(name) or session_plugins[name]
        in_tree = ACTIONS[name] if name in actions else SESSION_PLUGINS[name]
        raise ContractError(duplicate_name(in_tree, own, "class"))
    parts: list[type[SessionPlugin] | type[SessionAction]] = [
        *actions.values(),
        *session_plugins.values(),
    ]
    for part in parts:
        check_part(part, f"class {part.__module__}.{part.__qualname__}")
    full, defaults = registered(given, texts)
    if not files:
        return Deciders(
            config.default(full, defaults), full, actions, session_plugins, compat or Compat()
        )
    known = known_names(compat, actions, session_plugins)
    read = [config.parse(file.text, file.source, full, defaults, known) for file in files]
    return Deciders(config.merged(read), full, actions, session_plugins, compat or Compat())
