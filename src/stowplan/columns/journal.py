"""Journal of changed rows, in order, so that readers update only those."""

from __future__ import annotations

KEPT_MIN = 4096


class Journal:
    """Changed rows, numbered by generation. A reader that is too far behind reads all rows."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._first = 0

    @property
    def generation(self) -> int:
        """Number of changes so far."""
        return self._first + len(self._rows)

    def touch(self, row: int) -> None:
        """A row changed."""
        self._rows.append(row)

    def trim(self, n_nodes: int) -> None:
        """Drop the older half when it has more entries than a reader would process one by one."""
        if len(self._rows) > max(KEPT_MIN, 4 * n_nodes):
            dropped = len(self._rows) // 2
            del self._rows[:dropped]
            self._first += dropped

    def touch_all(self, rows: list[int]) -> None:
        """Several rows changed, in this order."""
        self._rows += rows

    def all_since(self, generation: int) -> list[int] | None:
        """Rows changed since `generation`, with repetitions; None when it is too old."""
        return None if generation < self._first else self._rows[generation - self._first :]

    def since(self, generation: int) -> list[int] | None:
        """Rows changed since `generation`, each once; None when it is too old."""
        if generation < self._first:
            return None
        return list(dict.fromkeys(self._rows[generation - self._first :]))
