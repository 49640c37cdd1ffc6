"""NodeSelection: some nodes of a session, in order, as positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from stowplan.batch.queue_models.volcano.volcano_node import VolcanoNode
from stowplan.columns.array_types import Ints


class NodeSelection(Sequence[VolcanoNode]):
    """Read-only. all_nodes: of the session. places: int64 (n,), positions among them."""

    __slots__ = ("all_nodes", "places")

    def __init__(self, all_nodes: Sequence[VolcanoNode], places: Ints) -> None:
        self.all_nodes, self.places = all_nodes, places

    def __len__(self) -> int:
        return len(self.places)

    def __iter__(self) -> Iterator[VolcanoNode]:
        nodes = self.all_nodes
        return iter([nodes[place] for place in self.places.tolist()])

    @overload
    def __getitem__(self, index: int) -> VolcanoNode: ...
    @overload
    def __getitem__(self, index: slice) -> NodeSelection: ...
    def __getitem__(self, index: int | slice) -> VolcanoNode | NodeSelection:
        if isinstance(index, slice):
            return NodeSelection(self.all_nodes, self.places[index])
        return self.all_nodes[int(self.places[index])]

    def take(self, indices: Ints) -> NodeSelection:
        """The nodes at these positions of the selection."""
        return NodeSelection(self.all_nodes, self.places[indices])
