"""From an `actions:` / `tiers:` file to sessions: the one place that names actions and policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from stowplan.assembly.rules_1_13 import Rules113
from stowplan.assembly.rules_today import RulesOfToday, session_framework, table_of_session
from stowplan.batch.actions.allocate import Allocate
from stowplan.batch.actions.backfill import Backfill
from stowplan.batch.actions.preempt import Preempt
from stowplan.batch.actions.reclaim import Reclaim
from stowplan.batch.actions.resume import Resume
from stowplan.batch.arguments import is_boolean, is_integer
from stowplan.batch.compat import Compat
from stowplan.batch.policies import nodeorder, predicates
from stowplan.batch.policies.conformance import Conformance
from stowplan.batch.policies.drf import Drf
from stowplan.batch.policies.gang import Gang
from stowplan.batch.policies.priority import Priority
from stowplan.batch.policies.proportion import Proportion
from stowplan.batch.rules import Rules
from stowplan.batch.session import Action, Policy, SessionOptions
from stowplan.batch.tiers import PolicyUse
from stowplan.batch.working import Working
from stowplan.config.batch import (
    DEFAULT_TEXT,
    KUBE_BATCH,
    SCHEDULER_NAMES,
    BatchConfiguration,
    Known,
    read,
)
from stowplan.framework import Framework, Snapshot

ACTIONS: dict[str, type[Action]] = {
    action.name: action for action in (Allocate, Backfill, Preempt, Reclaim)
}
"""Name -> class of every action that ships."""

POLICIES: dict[str, type[Policy]] = {
    policy.name: policy
    for policy in (
        Conformance,
        Drf,
        Gang,
        nodeorder.NodeOrder,
        predicates.Predicates,
        Priority,
        Proportion,
    )
}
"""Name -> class of every policy that ships."""

_NUMBER = ("a whole number", is_integer)
_TRUTH = ("true or false", is_boolean)
_ARGUMENTS = {
    nodeorder.NodeOrder.name: {
        nodeorder.LEAST_REQUESTED: _NUMBER,
        nodeorder.BALANCED_RESOURCE: _NUMBER,
        nodeorder.NODE_AFFINITY: _NUMBER,
        nodeorder.POD_AFFINITY: _NUMBER,
    },
    predicates.Predicates.name: {
        predicates.MEMORY_PRESSURE: _TRUTH,
        predicates.DISK_PRESSURE: _TRUTH,
        predicates.PID_PRESSURE: _TRUTH,
    },
}


def batch_configuration(
    text: str | bytes | None,
    source: str,
    compat: Compat | None = None,
    actions: Mapping[str, type[Action]] | None = None,
    policies: Mapping[str, type[Policy]] | None = None,
) -> BatchConfiguration:
    """The configuration that `text` holds, None for the default one; raises ConfigError.

    actions, policies: one's own, by name, beside those that ship; theirs take any argument.
    """
    known = known_names(compat, actions, policies)
    return read(DEFAULT_TEXT if text is None else text, source, known)


def known_names(
    compat: Compat | None = None,
    actions: Iterable[str] | None = None,
    policies: Iterable[str] | None = None,
) -> Known:
    """What a file may name: what ships, and one's own beside it."""
    return Known(
        actions={*ACTIONS, *(actions or ())},
        policies={
            **{name: _ARGUMENTS.get(name, {}) for name in POLICIES},
            **dict.fromkeys(policies or ()),
        },
        lenient=compat is not None and compat.lenient_file,
        # kube-batch knows of no other scheduler's pods.
        scheduler_names=(KUBE_BATCH,)
        if compat is not None and compat.lenient_file
        else SCHEDULER_NAMES,
    )


def rules_for(
    compat: Compat,
    framework: Framework | None = None,
    snapshot: Callable[[], Snapshot] | None = None,
) -> Callable[[Working], Rules]:
    """What makes the rules of a session.

    framework: whose filters and scores count, from `session_framework` unless given. snapshot:
    gives the nodes and pods as they are when a session opens; None makes a table per session.
    """
    if compat.rules_of_1_13:
        return Rules113
    asked = framework or session_framework()

    def rules(working: Working) -> Rules:
        now = Snapshot(table_of_session(working)) if snapshot is None else snapshot()
        return RulesOfToday(working, asked, now)

    return rules


def session_options(
    configuration: BatchConfiguration,
    compat: Compat | None = None,
    rules: Callable[[Working], Rules] | None = None,
    actions: Mapping[str, type[Action]] | None = None,
    policies: Mapping[str, type[Policy]] | None = None,
) -> SessionOptions:
    """What every session of a configuration is opened with."""
    all_actions = {**ACTIONS, **(actions or {})}
    switches = compat or Compat()
    resume = () if switches.forgets_promises else (Resume(),)
    return SessionOptions(
        tiers=tuple(
            tuple(PolicyUse(p.name, frozenset(p.disabled), p.arguments) for p in tier)
            for tier in configuration.tiers or ()
        ),
        # What Volcano alone has was warned of when the file was read.
        actions=(
            *resume,
            *(all_actions[name]() for name in configuration.actions if name in all_actions),
        ),
        policies={**POLICIES, **(policies or {})},
        compat=switches,
        rules=rules,
    )


__all__ = [
    "ACTIONS",
    "POLICIES",
    "batch_configuration",
    "known_names",
    "rules_for",
    "session_options",
]
