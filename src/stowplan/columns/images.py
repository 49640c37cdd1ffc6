"""Images on nodes, by image, with the counts of the last snapshot.

Source: kube-scheduler v1.36, backend/cache addNodeImageStates and NodeInfo.Snapshot.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from stowplan.columns.array_types import Ints
from stowplan.objects.node import Node


class ImageState:
    """One image name.

    size: bytes, by the node that first had it. rows: row -> number of nodes with the image at the
    row's last refresh; the number of rows itself is current.
    """

    __slots__ = ("_arrays", "rows", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: dict[int, int] = {}
        self._arrays: tuple[Ints, Ints] | None = None

    def arrays(self) -> tuple[Ints, Ints]:
        """int64 (n_rows_with_image,) twice: the rows, and the count at each row's last refresh."""
        if self._arrays is None:
            self._arrays = (
                np.fromiter(self.rows.keys(), dtype=np.int64, count=len(self.rows)),
                np.fromiter(self.rows.values(), dtype=np.int64, count=len(self.rows)),
            )
        return self._arrays

    def set_count(self, row: int, count: int) -> None:
        """Set the count of `row`."""
        self.rows[row] = count
        self._arrays = None

    def drop(self, row: int) -> int:
        """Remove `row`; returns its count."""
        self._arrays = None
        return self.rows.pop(row)


class ImageIndex:
    """All images, by name.

    The number of nodes with an image is refreshed per row, only for rows that changed since the
    last refresh: the original's snapshots do this, and its scores depend on it.
    """

    def __init__(self) -> None:
        self.states: dict[str, ImageState] = {}
        self._names: dict[int, tuple[str, ...]] = {}
        # Rows whose nodes report another size than the image has.
        self._contrary: set[int] = set()

    def would_change(self, row: int) -> bool:
        """True when writing the images of a row again may change something: an image that no other
        node has takes its node's size."""
        return row in self._contrary

    def write(self, row: int, node: Node) -> None:
        """Set the images of a row. Counts are those of the next refresh."""
        self.clear(row)
        names: list[str] = []
        for image in node.status.images:
            for name in image.names:
                state = self.states.get(name)
                if state is None:
                    state = self.states[name] = ImageState(image.size_bytes)
                if state.size != image.size_bytes:
                    self._contrary.add(row)
                if row not in state.rows:
                    state.set_count(row, len(state.rows) + 1)
                    names.append(name)
        if names:
            self._names[row] = tuple(names)

    def clear(self, row: int) -> None:
        """Remove the images of a row; an image without rows is removed with its size."""
        self._contrary.discard(row)
        for name in self._names.pop(row, ()):
            state = self.states[name]
            state.drop(row)
            if not state.rows:
                del self.states[name]

    def move(self, source: int, target: int) -> None:
        """Move a node to another row."""
        names = self._names.pop(source, None)
        if names is None:
            return
        self._names[target] = names
        if source in self._contrary:
            self._contrary.discard(source)
            self._contrary.add(target)
        for name in names:
            state = self.states[name]
            state.set_count(target, state.drop(source))

    def copy_row(self, source: ImageIndex, row: int) -> None:
        """Copy from `source` the images of a row that has none here, with the row's counts."""
        names = source._names.get(row)
        if names is None:
            return
        self._names[row] = names
        for name in names:
            theirs = source.states[name]
            if name not in self.states:
                self.states[name] = ImageState(theirs.size)
            self.states[name].set_count(row, theirs.rows[row])

    def refresh(self, row: int) -> bool:
        """Set the counts of a row to the current ones; True when one changed."""
        changed = False
        for name in self._names.get(row, ()):
            state = self.states[name]
            if state.rows[row] != len(state.rows):
                state.set_count(row, len(state.rows))
                changed = True
        return changed

    def behind(self, n_rows: int) -> NDArray[np.uint8]:
        """uint8 (n_rows,): 1 for rows of which `refresh` would change a count."""
        marks = np.zeros(n_rows, dtype=np.uint8)
        for state in self.states.values():
            rows, counts = state.arrays()
            marks[rows[counts != len(state.rows)]] = 1
        return marks

    def of_row(self, row: int) -> dict[str, tuple[int, int]]:
        """Image name -> (bytes, number of nodes at the row's last refresh)."""
        return {
            name: (self.states[name].size, self.states[name].rows[row])
            for name in self._names.get(row, ())
        }
