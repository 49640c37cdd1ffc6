"""A sorted set of keys, in runs of bounded length."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

RUN_KEYS_MAX = 1024


class KeyIndex:
    """Keys in order. Insertion and removal move at most one run."""

    __slots__ = ("_firsts", "_runs")

    def __init__(self, keys: Iterable[str] = ()) -> None:
        ordered = sorted(set(keys))
        half = RUN_KEYS_MAX // 2
        self._runs = [ordered[at : at + half] for at in range(0, len(ordered), half)]
        self._firsts = [run[0] for run in self._runs]

    def _run_of(self, key: str) -> int:
        return max(bisect_right(self._firsts, key) - 1, 0)

    def add(self, key: str) -> None:
        """Add a new key."""
        if not self._runs:
            self._runs.append([key])
            self._firsts.append(key)
            return
        at = self._run_of(key)
        run = self._runs[at]
        insort(run, key)
        if len(run) > RUN_KEYS_MAX:
            half = len(run) // 2
            self._runs[at : at + 1] = [run[:half], run[half:]]
            self._firsts[at : at + 1] = [run[0], run[half]]
        else:
            self._firsts[at] = run[0]

    def discard(self, key: str) -> None:
        """Remove a key if it is present."""
        if not self._runs:
            return
        at = self._run_of(key)
        run = self._runs[at]
        place = bisect_left(run, key)
        if place == len(run) or run[place] != key:
            return
        del run[place]
        if run:
            self._firsts[at] = run[0]
        else:
            del self._runs[at], self._firsts[at]

    def since(self, key: str) -> Iterator[str]:
        """The keys >= `key`, in order. The index must not change meanwhile."""
        if not self._runs:
            return
        at = self._run_of(key)
        yield from self._runs[at][bisect_left(self._runs[at], key) :]
        for run in self._runs[at + 1 :]:
            yield from run

    def count(self, start: str, stop: str) -> int:
        """The number of keys in [start, stop)."""
        if not self._runs:
            return 0
        first, last = self._run_of(start), self._run_of(stop)
        total = sum(len(run) for run in self._runs[first:last])
        before = bisect_left(self._runs[first], start)
        return total - before + bisect_left(self._runs[last], stop)

    def between(self, start: str, stop: str) -> Iterator[str]:
        """The keys in [start, stop), in order. The index must not change meanwhile."""
        if not self._runs:
            return
        first, last = self._run_of(start), self._run_of(stop)
        for at in range(first, last + 1):
            run = self._runs[at]
            low = bisect_left(run, start) if at == first else 0
            high = bisect_left(run, stop) if at == last else len(run)
            yield from run[low:high]
