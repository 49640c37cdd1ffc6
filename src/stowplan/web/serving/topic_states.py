"""States of topics that are whole in every frame, or a tail of a ring."""

from __future__ import annotations

import msgspec

from stowplan.objects.encoding.tree import Tree
from stowplan.web.model.decision_ring import DecisionRing, RecordedDecision
from stowplan.web.model.node_columns import NodeView, snapshot_body, update_body
from stowplan.web.model.page_frames import FrameBody

FIRST_DECISIONS = 200
DECISIONS_PER_TICK = 100


class WholeState(msgspec.Struct, frozen=True):
    """A tree that every frame has whole."""

    tree: Tree

    def snapshot(self) -> FrameBody:
        """See `TopicState`."""
        return FrameBody(self.tree)

    def update_since(self, before: WholeState) -> FrameBody | None:
        """See `TopicState`."""
        return FrameBody(self.tree)


class NodesState(msgspec.Struct, frozen=True):
    """The nodes."""

    view: NodeView

    def snapshot(self) -> FrameBody:
        """See `TopicState`."""
        return snapshot_body(self.view)

    def update_since(self, before: NodesState) -> FrameBody | None:
        """See `TopicState`."""
        return update_body(before.view, self.view)


class DecisionsState(msgspec.Struct, frozen=True):
    """The decisions up to a number. latest: the kept ones, oldest first."""

    number: int
    latest: list[RecordedDecision]

    @classmethod
    def of(cls, ring: DecisionRing) -> DecisionsState:
        """The state of a ring now."""
        number = ring.read()
        return cls(number, ring.since(number - FIRST_DECISIONS))

    def snapshot(self) -> FrameBody:
        """See `TopicState`."""
        return FrameBody({"decisions": [one.tree() for one in self.latest]})

    def update_since(self, before: DecisionsState) -> FrameBody | None:
        """See `TopicState`."""
        new = [one for one in self.latest if one.id > before.number]
        skipped = self.number - before.number - min(len(new), DECISIONS_PER_TICK)
        trees = [one.tree() for one in new[-DECISIONS_PER_TICK:]]
        return FrameBody({"decisions": trees, "skipped": skipped})
