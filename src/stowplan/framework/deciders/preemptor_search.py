"""PreemptorSearch: what a PostFilter keeps of a class of pods that fit nowhere and may preempt.

Preemptors come one after the other, and each of them changes a row or two. A plugin that offers a
search keeps the verdicts on all rows and the candidates for preemption as rows change, so that a
pod costs what has changed and not the number of nodes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

from stowplan.columns.array_types import Ints
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.deciders.extender_review import PreemptionCandidate
from stowplan.framework.runtime.framework import Framework
from stowplan.framework.snapshot import Snapshot
from stowplan.framework.status import Status
from stowplan.objects.pod import Pod

PreemptionKernel = Callable[..., int]
"""See `columns.engine.preemption_kernels.run`."""

FindKernel = Callable[[], PreemptionKernel | None]
"""Loads the kernel; None where there is none."""

Rejections = Sequence[tuple[Status, int]]
"""The statuses of the rows that reject, each with its number of rows."""


class PlannedPreemption(NamedTuple):
    """What a preemptor chooses, and what it is rejected for: the same object as for the one before
    of its class where nothing has changed."""

    candidate: PreemptionCandidate
    rejections: Rejections


class PreemptorSearch(Protocol):
    """Verdicts and candidates of one class, nominated pods counted.

    The answers are those after the last `follow`, which must have returned True.
    """

    def follow(self, pod: Pod, snapshot: Snapshot) -> bool:
        """Take over what has changed; False where the pod has to be walked."""

    @property
    def n_passing(self) -> int:
        """Number of rows on which a pod of the class passes."""

    def passes(self, row: int) -> bool:
        """True where a pod of the class passes on a row."""

    def passes_without(self, row: int, uid: str) -> bool | None:
        """The same for the pod with this uid, which does not count its own nomination; None where
        it has to be walked."""

    def passes_where_nominated(self, row: int, pod: Pod) -> bool:
        """True where this pod is nominated to a row, passes there beside all other nominated pods
        that count for its class, and is known to request what the class does."""

    def rejections(self) -> Rejections:
        """The statuses of the rows that reject, each with its number of rows."""

    def passing(self) -> Ints:
        """int64: the rows on which a pod of the class passes."""

    def cheapest(self, pod: Pod) -> PreemptionCandidate | None:
        """The candidate that the walk chooses for a pod without a nomination; None where it has to
        be walked."""

    def may_join(self, other: PreemptorSearch) -> bool:
        """True where preemptors of both searches may be planned together."""

    def plan(
        self, members: Sequence[PreemptorSearch], kernel: PreemptionKernel
    ) -> Iterator[PlannedPreemption]:
        """What preemptors without nominations choose in turn, if nothing but their nominations
        changes between them; up to the first that has to be decided otherwise. members: the search
        of each, which may join this one, followed; no row passes for any of them."""


@runtime_checkable
class SearchesForPreemptors(Protocol):
    """A PostFilter plugin with a search."""

    def preemptor_search(
        self, pod: Pod, snapshot: Snapshot, framework: Framework, state: CycleState
    ) -> PreemptorSearch | None:
        """A search for pods that get the verdicts of this one, whose PreFilters left `state`; None
        where verdicts or evictions depend on more than the row."""
