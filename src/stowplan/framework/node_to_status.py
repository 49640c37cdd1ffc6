"""Verdicts: which node passed the filters of an attempt, and why each of the others did not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.framework.status import OK, Status, error

PASSED = -1


def as_refusal(status: Status) -> Status:
    """A filter's answer as it counts: what is neither success nor refusal is an error."""
    if status.is_success or status.is_rejected:
        return status
    text = f'running "{status.plugin}" filter plugin: {status.message}'
    return error(text).by(status.plugin)


class PluginVerdicts(msgspec.Struct, frozen=True):
    """One plugin's answers.

    codes: int64 (n_rows,), 0 where a node passes. explain: a code other than 0 -> the refusal.
    certain: True when no answer can be an error, so that nobody need look.
    """

    codes: NDArray[np.int64]
    explain: Callable[[int], Status]
    certain: bool = False


class NodeToStatus:
    """The first refusal per node.

    rows: int64 (n_rows,), the rows that were evaluated. by: int16 (n_rows,), index into
    `plugins` of the first that refuses, PASSED where none does. codes: int64 (n_rows,), its code.
    """

    def __init__(self, rows: NDArray[np.int64], plugins: Sequence[str]) -> None:
        self.rows = rows
        self.plugins = tuple(plugins)
        self.by: NDArray[np.int16] = np.full(rows.shape[0], PASSED, dtype=np.int16)
        self.codes: NDArray[np.int64] = np.zeros(rows.shape[0], dtype=np.int64)
        self._explain: dict[int, Callable[[int], Status]] = {}
        # Where a verdict has been replaced its code is the number of the status given.
        self._overruled: NDArray[np.bool_] | None = None
        self._given: dict[Status, int] = {}
        self._kept: dict[tuple[int, int], Status] = {}
        self._may_err = False
        self._refusals: list[tuple[Status, NDArray[np.int64]]] | None = None

    @classmethod
    def given(cls, rows: NDArray[np.int64], statuses: Sequence[Status]) -> NodeToStatus:
        """Verdicts that were found one by one: a status per row."""
        verdicts = cls(rows, tuple(dict.fromkeys(status.plugin for status in statuses)))
        everywhere = np.arange(rows.shape[0])
        verdicts.overrule_all(everywhere, everywhere, statuses)
        return verdicts

    def record(self, plugin: int, verdicts: PluginVerdicts, places: NDArray[np.int64]) -> None:
        """Enter a plugin's answers for `places` (positions in `rows`); earlier refusals stay."""
        refused = verdicts.codes != 0
        if not refused.any():
            return
        refused &= self.by[places] == PASSED
        self._refusals = None
        where = places[refused]
        codes = verdicts.codes[refused]
        self.by[where] = plugin
        self.codes[where] = codes
        self._explain[plugin] = verdicts.explain
        if not verdicts.certain:
            statuses = (self._status(plugin, code) for code in _distinct_codes(codes))
            self._may_err |= not all(status.is_rejected for status in statuses)

    def is_whole(self, n_nodes: int) -> bool:
        """True where all rows were evaluated, and no verdict has been replaced."""
        return self.rows.shape[0] == n_nodes and self._overruled is None

    def overrule(self, place: int, status: Status) -> None:
        """Replace the verdict at a place (a position in `rows`) with one found another way."""
        self.overrule_all(np.array([place]), np.zeros(1, dtype=np.int64), (status,))

    def overrule_all(
        self, places: NDArray[np.int64], which: NDArray[np.int64], statuses: Sequence[Status]
    ) -> None:
        """Replace the verdicts at `places`. which: int64, of each the index of its status."""
        self._refusals = None
        if self._overruled is None:
            self._overruled = np.zeros(self.rows.shape[0], dtype=np.bool_)
        self._overruled[places] = True
        numbers = [self._given.setdefault(status, len(self._given)) for status in statuses]
        self.codes[places] = np.array(numbers, dtype=np.int64)[which]
        refusers = [self._refuser(status) for status in statuses]
        self.by[places] = np.array(refusers, dtype=np.int16)[which]

    def _refuser(self, status: Status) -> int:
        """The index of the plugin that has given a status from outside, PASSED for Success."""
        if status.is_success:
            return PASSED
        self._may_err |= not status.is_rejected
        # A nominated pod can make a plugin fail that does not filter itself.
        if status.plugin not in self.plugins:
            self.plugins += (status.plugin,)
        return self.plugins.index(status.plugin)

    @property
    def errors(self) -> list[Status]:
        """The distinct answers that were no refusals; they end the attempt."""
        if not self._may_err:
            return []
        found = (status for status, _ in self.refusals() if not status.is_rejected)
        return list(dict.fromkeys(found))

    def passed(self) -> NDArray[np.int64]:
        """int64: the rows that passed, ascending by place in `rows`."""
        rows: NDArray[np.int64] = self.rows[self.by == PASSED]
        return rows

    def at(self, place: int) -> Status:
        """The verdict at a place in `rows`; OK where the node passed."""
        if self._overruled is not None and self._overruled[place]:
            return tuple(self._given)[int(self.codes[place])]
        plugin = int(self.by[place])
        return OK if plugin == PASSED else self._status(plugin, int(self.codes[place]))

    def status_of(self, row: int) -> Status:
        """The verdict on a row; raises LookupError when the row was not evaluated."""
        places = np.flatnonzero(self.rows == row)
        if places.size == 0:
            raise LookupError(f"row {row} was not evaluated")
        return self.at(int(places[0]))

    def refusals(self) -> Sequence[tuple[Status, NDArray[np.int64]]]:
        """Each distinct refusal with the rows it holds for: int64, at least one."""
        if self._refusals is None:
            self._refusals = list(self._grouped())
        return self._refusals

    def _grouped(self) -> Iterator[tuple[Status, NDArray[np.int64]]]:
        usual = self.by != PASSED
        if self._overruled is not None:
            special = np.flatnonzero(usual & self._overruled)
            usual &= ~self._overruled
            given = tuple(self._given)
            for code, places in _group_by_code(special, self.codes[special]):
                yield given[code], self.rows[places]
        by = self.by[usual]
        for plugin, some in _group_by_code(np.flatnonzero(usual), by):
            for code, places in _group_by_code(some, self.codes[some]):
                yield self._status(plugin, code), self.rows[places]

    def _status(self, plugin: int, code: int) -> Status:
        status = self._kept.get((plugin, code))
        if status is None:
            status = as_refusal(self._explain[plugin](code).by(self.plugins[plugin]))
            self._kept[plugin, code] = status
        return status


def _group_by_code(
    places: NDArray[np.int64], codes: NDArray[Any]
) -> Iterator[tuple[int, NDArray[np.int64]]]:
    """The different codes, ascending, each with the places that have it; codes: one per place."""
    distinct = _distinct_codes(codes)
    for code in distinct:
        yield code, places if len(distinct) == 1 else places[codes == code]


def _distinct_codes(codes: NDArray[Any]) -> list[int]:
    """The different codes, ascending. Mostly all are the same, which is seen in one glance."""
    are_alike = codes.shape[0] == 0 or (codes == codes[0]).all()
    distinct: list[int] = (codes[:1] if are_alike else np.unique(codes)).tolist()
    return distinct
