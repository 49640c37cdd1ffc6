"""Which rows changed, in order, so that whoever keeps something per row re-reads only those."""

from __future__ import annotations

KEPT_MIN = 4096


class Journal:
    """Touched rows, numbered by generation. A reader that fell too far behind re-reads all."""

    def __init__(self) -> None:
        self._rows: list[int] = []
        self._first = 0

    @property
    def generation(self) -> int:
        """The number of touches so far."""
        return self._first + len(self._rows)

    def touch(self, row: int) -> None:
        """A row changed."""
        self._rows.append(row)

    def trim(self, n_nodes: int) -> None:
        """Forget the older half when more is kept than a reader would re-read one by one."""
        if len(self._rows) > max(KEPT_MIN, 4 * n_nodes):
            dropped = len(self._rows) // 2
            del self._rows[:dropped]
            self._first += dropped

    def touch_all(self, rows: list[int]) -> None:
        """Rows changed, in this order."""
        self._rows += rows

    def all_since(self, generation: int) -> list[int] | None:
        """Rows touched since `generation`, as often as they were; None when no longer known."""
        return None if generation < self._first else self._rows[generation - self._first :]

    def since(self, generation: int) -> list[int] | None:
        """Rows touched since `generation`, each once; None when it is no longer known."""
        if generation < self._first:
            return None
        return list(dict.fromkeys(self._rows[generation - self._first :]))
