"""Refusal cache: pods of a class are refused again without a walk.

Pods that lack resources are retried whenever a pod leaves, mostly to be refused again. A verdict
stays valid while its node is unchanged. On changed nodes, filters that read more than the node are
rerun, and the refusal stays valid if their verdicts are the same.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable

import numpy as np

from stowplan.cycle.attempt import Attempt
from stowplan.cycle.engine.classes import CLASSES_MAX, EnginePodClass
from stowplan.cycle.engine.fit_check import static_revision_of
from stowplan.framework import Snapshot
from stowplan.framework.deciders.decider import Decision
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin

CELLS_MAX = 2_000_000
"""Maximum rows times classes whose verdicts are kept; the least recently refused are dropped
first."""

ROWS_MAX = 64
"""With this many changed rows, and a quarter of all, a full walk is as cheap."""

IsPlanned = Callable[[Snapshot], bool]


class ClassRefusal:
    """The last refusal of a class and the verdicts on which it rests."""

    def __init__(
        self, decision: Decision, attempt: Attempt, is_planned: IsPlanned, card_filter: str = ""
    ) -> None:
        """is_planned: whether only pods on nodes and free amounts have changed for the class.
        card_filter: see `EnginePodClass`."""
        self._decision = decision
        self._state = revision_of(attempt.snapshot)
        self._attempt: Attempt | None = attempt
        self._is_planned = is_planned
        # Revision at which the refusal was last found invalid.
        self._invalid_at: tuple[int, ...] = ()
        self._static_revision = static_revision_of(attempt.snapshot)
        self._asked = _filters_to_rerun(attempt, card_filter)
        planned = is_planned(attempt.snapshot)
        self._lacks_resources_only: frozenset[str] | None = None
        asked = self._asked
        if planned and asked is not None and _lacks_resources_only(attempt, asked, card_filter):
            self._lacks_resources_only = frozenset(decision.plugins)
        if self._asked is None or not planned:
            self.forget_verdicts()

    def forget_verdicts(self) -> None:
        """Drop the verdicts; the refusal is then valid only while nothing changes at all."""
        self._attempt = self._asked = None

    def in_force(self, snapshot: Snapshot) -> Decision | None:
        """The decision, or None if the next attempt may differ."""
        now = revision_of(snapshot)
        if now != self._state:
            if self._attempt is None or now == self._invalid_at or not self._is_planned(snapshot):
                return None
            if not self._is_the_same(self._attempt, snapshot):
                self._invalid_at = now
                return None
            self._state = now
            self._static_revision = static_revision_of(snapshot)
        return self._decision

    def lacks_resources_only(self, snapshot: Snapshot) -> frozenset[str] | None:
        """See `CachedRefusal`."""
        return (
            self._lacks_resources_only
            if self._static_revision == static_revision_of(snapshot)
            else None
        )

    def _is_the_same(self, attempt: Attempt, snapshot: Snapshot) -> bool:
        nodes, pod = snapshot.nodes, attempt.pod
        touched = nodes.journal.since(self._state[0])
        if touched is None or len(touched) > max(ROWS_MAX, nodes.n_nodes // 4):
            self.forget_verdicts()
            return False
        if _may_post_filter_help(attempt, snapshot):
            return False
        assert attempt.verdicts is not None
        rows = np.array(touched, dtype=np.int64)
        by, codes = attempt.verdicts.by[rows], attempt.verdicts.codes[rows]
        for place, member in self._asked or ():
            found = member.verdicts(pod, nodes, rows, attempt.state).codes
            # An earlier filter refused the row, so this verdict does not matter.
            differs = np.where(by == place, found != codes, (by > place) & (found != 0))
            if differs.any():
                return False
        return True


def _filters_to_rerun(
    attempt: Attempt, card_filter: str
) -> list[tuple[int, RegisteredPlugin]] | None:
    """Filters that read more than the node, with their positions; None if the decision may depend
    on more than their verdicts for changed rows."""
    verdicts, framework = attempt.verdicts, attempt.framework
    if verdicts is None or not verdicts.is_whole(attempt.snapshot.nodes.n_nodes):
        return None
    members = framework.filters_by_row(attempt.state, card_filter)
    if (
        members is None
        or framework.profile.checks_all_filters
        or _may_post_filter_help(attempt, attempt.snapshot)
    ):
        return None
    asked = [(place, member) for place, member in enumerate(members) if not member.node_only]
    return asked if all(member.has_stable_codes for _, member in asked) else None


def _lacks_resources_only(
    attempt: Attempt, asked: list[tuple[int, RegisteredPlugin]], card_filter: str
) -> bool:
    """True if the last filter, which checks amounts, is the only one that reads more of a row than
    its node; only that of GPU cards may follow it."""
    members = attempt.framework.filters_by_row(attempt.state, card_filter) or []
    if card_filter and asked and asked[-1][1].name == card_filter:
        if asked[-1][0] != len(members) - 1:
            return False
        members, asked = members[:-1], asked[:-1]
    if len(asked) != 1 or asked[0][0] != len(members) - 1:
        return False
    return asked[0][1].declaration.by_amounts


def _may_post_filter_help(attempt: Attempt, snapshot: Snapshot) -> bool:
    """True if a PostFilter may do more than rephrase the filters' refusals."""
    members = attempt.framework.at("postFilter")
    return any(member.may_help(attempt.pod, snapshot) for member in members)


class RefusalCache:
    """Bounded cache of class refusals."""

    def __init__(self) -> None:
        self._kept: OrderedDict[EnginePodClass, ClassRefusal] = OrderedDict()

    def keep(self, one: EnginePodClass, refusal: ClassRefusal, n_nodes: int) -> None:
        """Store the refusal of a class."""
        one.refused = refusal
        self._kept[one] = refusal
        self._kept.move_to_end(one)
        while len(self._kept) > min(CLASSES_MAX, max(1, CELLS_MAX // max(1, n_nodes))):
            _, oldest = self._kept.popitem(last=False)
            oldest.forget_verdicts()

    def retain(self, classes: Iterable[EnginePodClass]) -> None:
        """Keep the refusals of these classes and drop all others."""
        left = set(classes)
        for one in [one for one in self._kept if one not in left]:
            del self._kept[one]


def revision_of(snapshot: Snapshot) -> tuple[int, ...]:
    """Revision token; changes with anything that a decision may depend on, except nominations. Its
    first number is the journal's generation."""
    nodes = snapshot.nodes
    return nodes.journal.generation, nodes.shape, snapshot.object_store.version
