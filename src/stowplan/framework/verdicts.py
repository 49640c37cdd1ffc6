"""Verdicts: which node passed the filters of an attempt, and why each of the others did not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan.framework.status import OK, Status, error

PASSED = -1


def refusal_of(status: Status) -> Status:
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


class Verdicts:
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
        self._special: dict[int, Status] = {}
        self._kept: dict[tuple[int, int], Status] = {}
        self._may_err = False

    @classmethod
    def given(cls, rows: NDArray[np.int64], statuses: Sequence[Status]) -> Verdicts:
        """Verdicts that were found one by one: a status per row."""
        verdicts = cls(rows, tuple(dict.fromkeys(status.plugin for status in statuses)))
        for place, status in enumerate(statuses):
            verdicts.overrule(place, status)
        return verdicts

    def record(self, plugin: int, verdicts: PluginVerdicts, places: NDArray[np.int64]) -> None:
        """Enter a plugin's answers for `places` (positions in `rows`); earlier refusals stay."""
        refused = verdicts.codes != 0
        if not refused.any():
            return
        refused &= self.by[places] == PASSED
        where = places[refused]
        codes = verdicts.codes[refused]
        self.by[where] = plugin
        self.codes[where] = codes
        self._explain[plugin] = verdicts.explain
        if not verdicts.certain:
            statuses = (self._status(plugin, code) for code in np.unique(codes).tolist())
            self._may_err |= not all(status.is_rejected for status in statuses)

    def overrule(self, place: int, status: Status) -> None:
        """Replace the verdict at a place (a position in `rows`) with one found another way."""
        self._special[place] = status
        self._may_err |= not (status.is_success or status.is_rejected)
        # A nominated pod can make a plugin fail that does not filter itself.
        if not status.is_success and status.plugin not in self.plugins:
            self.plugins += (status.plugin,)
        self.by[place] = PASSED if status.is_success else self.plugins.index(status.plugin)

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
        special = self._special.get(place)
        if special is not None:
            return special
        plugin = int(self.by[place])
        return OK if plugin == PASSED else self._status(plugin, int(self.codes[place]))

    def status_of(self, row: int) -> Status:
        """The verdict on a row; raises LookupError when the row was not evaluated."""
        places = np.flatnonzero(self.rows == row)
        if places.size == 0:
            raise LookupError(f"row {row} was not evaluated")
        return self.at(int(places[0]))

    def refusals(self) -> Iterator[tuple[Status, NDArray[np.int64]]]:
        """Each distinct refusal with the rows it holds for: int64, at least one."""
        usual = self.by != PASSED
        for place, status in self._special.items():
            usual[place] = False
            if not status.is_success:
                yield status, self.rows[place : place + 1]
        for plugin in range(len(self.plugins)):
            places = np.flatnonzero(usual & (self.by == plugin))
            if places.size == 0:
                continue
            codes = self.codes[places]
            for code in np.unique(codes).tolist():
                yield self._status(plugin, code), self.rows[places[codes == code]]

    def _status(self, plugin: int, code: int) -> Status:
        status = self._kept.get((plugin, code))
        if status is None:
            status = refusal_of(self._explain[plugin](code).by(self.plugins[plugin]))
            self._kept[plugin, code] = status
        return status
