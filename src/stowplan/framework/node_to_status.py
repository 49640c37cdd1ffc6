"""NodeToStatus: which nodes passed the filters of an attempt, and why each other one did not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.columns.array_types import Bools, Ints
from stowplan.framework.status import OK, Status, error

PASSED = -1


def as_refusal(status: Status) -> Status:
    """A filter's status as it counts: anything that is neither Success nor a rejection is an
    error."""
    if status.is_success or status.is_rejected:
        return status
    text = f'running "{status.plugin}" filter plugin: {status.message}'
    return error(text).by(status.plugin)


class PluginVerdicts(msgspec.Struct, frozen=True):
    """Answers of one plugin.

    codes: int64 (n_rows,), 0 where a node passes. explain: code other than 0 -> status. certain:
    True when no answer can be an error, so that they need no check.
    """

    codes: Ints
    explain: Callable[[int], Status]
    certain: bool = False


class NodeToStatus:
    """The first rejection per node.

    rows: int64 (n_rows,), the evaluated rows. by: int16 (n_rows,), index into `plugins` of the
    first that rejects, PASSED where none does. codes: int64 (n_rows,), its code.
    """

    def __init__(self, rows: Ints, plugins: Sequence[str]) -> None:
        self.rows = rows
        self.plugins = tuple(plugins)
        self.by: NDArray[np.int16] = np.full(rows.shape[0], PASSED, dtype=np.int16)
        self.codes: Ints = np.zeros(rows.shape[0], dtype=np.int64)
        self._explain: dict[int, Callable[[int], Status]] = {}
        # For a replaced verdict the code is the index of the given status.
        self._overruled: Bools | None = None
        self._given: dict[Status, int] = {}
        self._kept: dict[tuple[int, int], Status] = {}
        self._may_err = False
        self._refusals: list[tuple[Status, Ints]] | None = None

    @classmethod
    def given(cls, rows: Ints, statuses: Sequence[Status]) -> NodeToStatus:
        """Verdicts from one status per row."""
        verdicts = cls(rows, tuple(dict.fromkeys(status.plugin for status in statuses)))
        everywhere = np.arange(rows.shape[0])
        verdicts.overrule_all(everywhere, everywhere, statuses)
        return verdicts

    @classmethod
    def numbered(
        cls, numbers: NDArray[np.int32], statuses: Sequence[Status], plugins: Sequence[str]
    ) -> NodeToStatus:
        """Verdicts of all rows. numbers: int32 (n_rows,), indexes into `statuses`, of which the
        first is OK; copied."""
        n_rows = numbers.shape[0]
        verdicts = cls(np.arange(n_rows), plugins)
        verdicts._overruled = np.ones(n_rows, dtype=np.bool_)
        verdicts._given = {status: number for number, status in enumerate(statuses)}
        counts = np.bincount(numbers, minlength=len(statuses)).tolist()
        used = [number for number, count in enumerate(counts) if count]
        refusers = np.full(len(statuses), PASSED, dtype=np.int16)
        refusers[used] = [verdicts._refuser(statuses[number]) for number in used]
        verdicts.by = refusers[numbers]
        verdicts.codes = numbers.astype(np.int64)
        verdicts._refusals = [
            (statuses[number], np.flatnonzero(numbers == number)) for number in used if number
        ]
        return verdicts

    def record(self, plugin: int, verdicts: PluginVerdicts, places: Ints) -> None:
        """Record a plugin's answers for `places` (positions in `rows`); earlier rejections stay."""
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
        """True when all rows were evaluated and no verdict was replaced."""
        return self.rows.shape[0] == n_nodes and self._overruled is None

    def overrule_all(self, places: Ints, which: Ints, statuses: Sequence[Status]) -> None:
        """Replace the verdicts at `places`. which: int64, for each the index of its status."""
        self._refusals = None
        if self._overruled is None:
            self._overruled = np.zeros(self.rows.shape[0], dtype=np.bool_)
        self._overruled[places] = True
        numbers = [self._given.setdefault(status, len(self._given)) for status in statuses]
        self.codes[places] = np.array(numbers, dtype=np.int64)[which]
        refusers = [self._refuser(status) for status in statuses]
        self.by[places] = np.array(refusers, dtype=np.int16)[which]

    def _refuser(self, status: Status) -> int:
        """Index of the plugin of a status given from outside, PASSED for Success."""
        if status.is_success:
            return PASSED
        self._may_err |= not status.is_rejected
        # A nominated pod can make a plugin fail that does not reject anything itself.
        if status.plugin not in self.plugins:
            self.plugins += (status.plugin,)
        return self.plugins.index(status.plugin)

    @property
    def errors(self) -> list[Status]:
        """The distinct errors; they end the attempt."""
        if not self._may_err:
            return []
        found = (status for status, _ in self.refusals() if not status.is_rejected)
        return list(dict.fromkeys(found))

    def passed(self) -> Ints:
        """int64: the rows that passed, ascending by place in `rows`."""
        rows: Ints = self.rows[self.by == PASSED]
        return rows

    def at(self, place: int) -> Status:
        """The verdict at a place in `rows`; OK where the node passed."""
        if self._overruled is not None and self._overruled[place]:
            return tuple(self._given)[int(self.codes[place])]
        plugin = int(self.by[place])
        return OK if plugin == PASSED else self._status(plugin, int(self.codes[place]))

    def status_of(self, row: int) -> Status:
        """The verdict of a row; raises LookupError when the row was not evaluated."""
        places = np.flatnonzero(self.rows == row)
        if places.size == 0:
            raise LookupError(f"row {row} was not evaluated")
        return self.at(int(places[0]))

    def refusals(self) -> Sequence[tuple[Status, Ints]]:
        """Each distinct rejection with its rows: int64, at least one."""
        if self._refusals is None:
            self._refusals = list(self._grouped())
        return self._refusals

    def _grouped(self) -> Iterator[tuple[Status, Ints]]:
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


def _group_by_code(places: Ints, codes: NDArray[Any]) -> Iterator[tuple[int, Ints]]:
    """The distinct codes, ascending, each with its places; codes: one per place."""
    distinct = _distinct_codes(codes)
    for code in distinct:
        yield code, places if len(distinct) == 1 else places[codes == code]


def _distinct_codes(codes: NDArray[Any]) -> list[int]:
    """The distinct codes, ascending. Usually all are equal, which is tested first."""
    are_alike = codes.shape[0] == 0 or (codes == codes[0]).all()
    distinct: list[int] = (codes[:1] if are_alike else np.unique(codes)).tolist()
    return distinct
