"""Session configuration: builds sessions from an `actions:` / `tiers:` file."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from stowplan.assembly.sessions.framework_cards import FrameworkCards, gpu_plugin
from stowplan.assembly.sessions.profile_rules import (
    ProfileRules,
    session_framework,
)
from stowplan.batch.actions.allocate import Allocate
from stowplan.batch.actions.backfill import Backfill
from stowplan.batch.actions.backfill_timed import ARGUMENTS as BACKFILL_TIMED_ARGUMENTS
from stowplan.batch.actions.backfill_timed import BackfillTimed
from stowplan.batch.actions.preempt import Preempt
from stowplan.batch.actions.reclaim import Reclaim
from stowplan.batch.actions.resume import Resume
from stowplan.batch.session import SessionAction, SessionOptions, SessionPlugin
from stowplan.batch.session_plugins import nodeorder, predicates
from stowplan.batch.session_plugins.conformance import ConformancePlugin
from stowplan.batch.session_plugins.drf import DrfPlugin
from stowplan.batch.session_plugins.gang import GangPlugin
from stowplan.batch.session_plugins.priority import PriorityPlugin
from stowplan.batch.session_plugins.proportion import ProportionPlugin
from stowplan.batch.session_rules import SessionRules
from stowplan.batch.state.session_state import SessionState
from stowplan.batch.tiers import SessionPluginUse
from stowplan.config.queue_models.queue_model_choice import KUBE_BATCH
from stowplan.config.session_configuration import (
    DEFAULT_TEXT,
    SCHEDULER_NAMES,
    BatchConfiguration,
    SupportedSettings,
    read,
)
from stowplan.framework import Framework, Snapshot
from stowplan.framework.deciders.session_arguments import is_boolean, is_integer

ACTIONS: dict[str, type[SessionAction]] = {
    action.name: action for action in (Allocate, Backfill, BackfillTimed, Preempt, Reclaim)
}
"""Name -> class of every built-in action."""

SESSION_PLUGINS: dict[str, type[SessionPlugin]] = {
    plugin.name: plugin
    for plugin in (
        ConformancePlugin,
        DrfPlugin,
        GangPlugin,
        nodeorder.NodeOrderPlugin,
        predicates.PredicatesPlugin,
        PriorityPlugin,
        ProportionPlugin,
    )
}
"""Name -> class of every built-in session plugin."""

_NUMBER = ("a whole number", is_integer)
_TRUTH = ("true or false", is_boolean)
_ARGUMENTS = {
    nodeorder.NodeOrderPlugin.name: {
        nodeorder.LEAST_REQUESTED: _NUMBER,
        nodeorder.BALANCED_RESOURCE: _NUMBER,
        nodeorder.NODE_AFFINITY: _NUMBER,
        nodeorder.POD_AFFINITY: _NUMBER,
    },
    predicates.PredicatesPlugin.name: {
        predicates.MEMORY_PRESSURE: _TRUTH,
        predicates.DISK_PRESSURE: _TRUTH,
        predicates.PID_PRESSURE: _TRUTH,
    },
}


def batch_configuration(
    text: str | bytes | None,
    source: str,
    *,
    actions: Mapping[str, type[SessionAction]] | None = None,
    session_plugins: Mapping[str, type[SessionPlugin]] | None = None,
    lenient: bool = False,
) -> BatchConfiguration:
    """Parse a configuration (None: the default one); raises ConfigError.

    actions, session_plugins: custom ones by name, in addition to the built-in ones; they take any
    argument. lenient: read it as kube-batch v0.5 does.
    """
    known = known_names(actions, session_plugins, lenient=lenient)
    return read(DEFAULT_TEXT if text is None else text, source, known)


def known_names(
    actions: Iterable[str] | None = None,
    session_plugins: Iterable[str] | None = None,
    *,
    lenient: bool = False,
    model: str = "",
) -> SupportedSettings:
    """Names that a file may use: built-in and custom ones. lenient: as for
    `batch_configuration`. model: see `SupportedSettings`."""
    return SupportedSettings(
        actions={*ACTIONS, *(actions or ())},
        policies={
            **{name: _ARGUMENTS.get(name, {}) for name in SESSION_PLUGINS},
            **dict.fromkeys(session_plugins or ()),
        },
        lenient=lenient,
        action_arguments={BackfillTimed.name: BACKFILL_TIMED_ARGUMENTS},
        # kube-batch ignores pods of other schedulers.
        scheduler_names=(KUBE_BATCH,) if lenient else SCHEDULER_NAMES,
        model=model,
    )


def rules_for(
    framework: Framework | None = None,
    snapshot: Callable[[], Snapshot] | None = None,
) -> Callable[[SessionState], SessionRules]:
    """Factory of a session's rules.

    framework: provides filters and scores; `session_framework` by default. snapshot: returns nodes
    and pods when a session opens; None: the session's node table without other objects.
    """
    asked = framework or session_framework()

    def rules(state: SessionState) -> SessionRules:
        now = Snapshot(state.nodes.table) if snapshot is None else snapshot()
        plugin = gpu_plugin(asked)
        if plugin is not None:
            state.nodes.cards = FrameworkCards(asked, plugin, now, state.nodes)
        return ProfileRules(asked, now)

    return rules


def session_options(
    configuration: BatchConfiguration,
    rules: Callable[[SessionState], SessionRules] | None = None,
    actions: Mapping[str, type[SessionAction]] | None = None,
    session_plugins: Mapping[str, type[SessionPlugin]] | None = None,
) -> SessionOptions:
    """Options of every session of a configuration."""
    all_actions = {**ACTIONS, **(actions or {})}
    known = [name for name in configuration.actions if name in all_actions]
    made = [all_actions[name]() for name in known]
    for action in made:
        if action.name in configuration.action_arguments:
            action.configure(configuration.action_arguments[action.name])
    return SessionOptions(
        tiers=tuple(
            tuple(SessionPluginUse(p.name, frozenset(p.disabled), p.arguments) for p in tier)
            for tier in configuration.tiers or ()
        ),
        # Volcano-only settings were reported as warnings when the file was read.
        actions=(Resume(), *made),
        plugins={**SESSION_PLUGINS, **(session_plugins or {})},
        rules=rules,
    )


__all__ = [
    "ACTIONS",
    "SESSION_PLUGINS",
    "batch_configuration",
    "known_names",
    "rules_for",
    "session_options",
]
