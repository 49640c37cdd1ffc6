"""Which nodes can be emptied, in which order, and where their pods go: a plan to drain them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from stowplan.cycle.explanation import pending_form
from stowplan.inputs.counts import count_of
from stowplan.insight.capacity.allowed_disruptions import Budgets
from stowplan.insight.capacity.pools import runs_on_every_node
from stowplan.insight.changes.freeing import MIRROR_ANNOTATION
from stowplan.insight.cluster_copy import ClusterCopy
from stowplan.insight.node_pools import pool_of
from stowplan.objects.encoding.dataframes import to_dataframe
from stowplan.objects.encoding.html_summary import html_summary, html_table, html_text
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

KEPT = "kept: it takes pods of other nodes"
MOVES_MAX = 20_000
"""Pods that are moved on the copy in one search."""


class Move(msgspec.Struct, frozen=True, rename="camel"):
    """A pod that is evicted and comes back on another node."""

    pod: str
    node: str


class DrainStep(msgspec.Struct, frozen=True, rename="camel"):
    """One node that is emptied. moves: in the order in which the pods are evicted and come back.
    commands: what a user of kubectl types."""

    node: str
    pool: str
    price: float
    moves: tuple[Move, ...]
    commands: tuple[str, ...]


class Blocker(msgspec.Struct, frozen=True, rename="camel"):
    """Reason why a node is not emptied."""

    node: str
    reason: str


class CompactPlan(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Nodes that can be emptied one after another, after all of them were cordoned.

    saved: price of these nodes. cordon: the first command. blockers: of the nodes that stay.
    """

    api_version: str
    nodes: int
    saved: float
    steps: tuple[DrainStep, ...]
    blockers: tuple[Blocker, ...] = ()
    cordon: str = ""
    not_searched: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        emptied = f"{len(self.steps)} of {count_of(self.nodes, 'node')} emptied"
        return f"CompactPlan({emptied}, saves {self.saved:g})"

    def _repr_html_(self) -> str:
        """For notebooks: the nodes to empty in their order, and why others stay."""
        steps = ((one.node, one.pool, f"{one.price:g}", len(one.moves)) for one in self.steps)
        return html_summary(
            repr(self),
            html_table(("Emptied node", "Pool", "Price", "Pods that move"), steps),
            html_table(("Node that stays", "Reason"), ((b.node, b.reason) for b in self.blockers)),
            *map(html_text, (*self.not_searched, *self.notes)),
        )

    def to_frame(self, library: str = "") -> Any:
        """One row per move as a DataFrame of pandas or polars; see `to_dataframe`."""
        rows = [(step, move) for step in self.steps for move in step.moves]
        columns = {
            "from_node": [step.node for step, _ in rows],
            "pod": [move.pod for _, move in rows],
            "to_node": [move.node for _, move in rows],
        }
        return to_dataframe(columns, library)


class Drain(NamedTuple):
    """A node that was emptied on the copy. moves: pods in the order of their evictions, each with
    its new node."""

    node: str
    moves: tuple[tuple[Pod, str], ...]


class CompactSearch:
    """One search. copy: the caller's own; it is changed. budgets: of the cluster.

    Nodes are tried from the one that requests least of what it offers to the one that requests
    most. All that are to be emptied are cordoned first, so that no pod moves twice.
    """

    def __init__(self, copy: ClusterCopy, budgets: Budgets, moves_max: int = MOVES_MAX) -> None:
        self.copy = copy
        self.budgets = budgets
        self.moves_max = moves_max
        self.n_moved = 0
        self.blockers: dict[str, str] = {}
        self.not_searched: list[str] = []
        table = copy.table
        self.nodes = {node.name: node for node in table.nodes}
        self.pods = {
            name: [info.pod for info in table.pods[row]] for row, name in enumerate(table.names)
        }

    def run(self) -> list[Drain]:
        """The drains in their order."""
        chosen = self._chosen(self._candidates())
        # Which nodes take pods has changed in between, so the plan as it will be run is decided
        # again, until every step of it works.
        while True:
            names = [drain.node for drain in chosen]
            again = self._replayed(names)
            if len(again) == len(names):
                return again
            chosen = again

    def _candidates(self) -> list[str]:
        """Nodes that nothing but room keeps from being emptied, the emptiest first."""
        found = []
        for name in self.nodes:
            reason = next(filter(None, map(self._blocks, self.pods[name])), "")
            if reason:
                self.blockers[name] = reason
            else:
                found.append((self._fill(name), len(self._movable(name)), name))
        return [name for _, _, name in sorted(found)]

    def _blocks(self, pod: Pod) -> str:
        """Why kubectl drain would not evict a pod, "" if it would."""
        if runs_on_every_node(pod) or pod.is_finished:
            return ""
        if pod.controller is None:
            return f"pod {pod.key} has no controller: nothing would create it again"
        return self.budgets.blocking(pod)

    def _movable(self, name: str) -> list[Pod]:
        """Pods that a drain of the node evicts, in the order in which their successors are decided:
        the highest priority first."""
        pods = [pod for pod in self.pods[name] if not runs_on_every_node(pod)]
        return sorted(pods, key=lambda pod: -pod.priority)

    def _fill(self, name: str) -> float:
        """The largest requested share of a resource, DaemonSets left out."""
        table, row = self.copy.table, self.copy.table.row(name)
        shares = []
        for resource in ("cpu", "memory"):
            offered = int(table.allocatable(resource)[row])
            asked = int(table.requested(resource)[row])
            shares.append(asked / offered if offered else 0.0)
        return max(shares)

    def _chosen(self, names: list[str]) -> list[Drain]:
        """Drains of as many of the nodes as can be, the first ones first; the copy is as before
        afterwards."""
        done: list[Drain] = []
        closed = list(names)
        self._cordon(closed)
        for at, name in enumerate(names):
            if name not in closed:
                continue
            if self.n_moved >= self.moves_max:
                left = [one for one in names[at:] if one in closed]
                self.not_searched.append(f"{len(left):,} nodes, after {self.n_moved:,} moved pods")
                self.blockers.update(dict.fromkeys(left, "not searched"))
                break
            drain = self._drained_with_room(name, closed)
            if drain is None:
                self._uncordon([name])
                closed.remove(name)
            else:
                done.append(drain)
        self._undo(done)
        self._uncordon(closed)
        return done

    def _drained_with_room(self, name: str, closed: list[str]) -> Drain | None:
        """Drain a node; where its pods find no room, the fullest of the nodes that are to be
        drained later are left open. None when it cannot be drained even so."""
        drain = self._drained(name)
        later = closed[closed.index(name) + 1 :]
        if drain is not None or not later:
            return drain
        self._uncordon(later)
        possible = self._drained(name)
        if possible is None:
            self._cordon(later)
            return None
        self._undo([possible])
        self._cordon(later)
        step = 1
        while drain is None and later:
            opened, later = later[-step:], later[:-step]
            self._uncordon(opened)
            for one in opened:
                closed.remove(one)
                self.blockers[one] = KEPT
            drain = self._drained(name)
            step *= 2
        self.blockers.pop(name, None)
        return drain

    def _replayed(self, names: list[str]) -> list[Drain]:
        """The drains of these nodes, all cordoned first; those that fail are left out. The copy is
        as before afterwards."""
        self._cordon(names)
        found = [drain for drain in map(self._drained, names) if drain is not None]
        self._undo(found)
        self._uncordon(names)
        return found

    def _cordon(self, names: Sequence[str]) -> None:
        for name in names:
            self.copy.table.update_node(_cordoned(self.nodes[name]))

    def _uncordon(self, names: Sequence[str]) -> None:
        for name in names:
            self.copy.table.update_node(self.nodes[name])

    def _undo(self, drains: Sequence[Drain]) -> None:
        """Put the moved pods back."""
        for drain in drains:
            for pod, _ in drain.moves:
                self.copy.remove(_successor(pod))
            for pod, _ in drain.moves:
                self.copy.table.add_pod(pod, drain.node)

    def _drained(self, name: str) -> Drain | None:
        """Move the pods of a cordoned node; None, and the copy as before, when one of them finds
        no node."""
        moves: list[tuple[Pod, str]] = []
        for pod in self._movable(name):
            self.copy.remove(pod)
            made = self.copy.place([_successor(pod)])[0]
            self.n_moved += 1
            if not made.node_name:
                reasons = self.copy.refusal(_successor(pod))
                text = ", ".join(f"{count} {reason}" for reason, count in reasons.items())
                self.blockers[name] = f"pod {pod.key} fits on no other node: {text}"
                self.copy.table.add_pod(pod, name)
                self._undo([Drain(name, tuple(moves))])
                return None
            moves.append((pod, made.node_name))
        return Drain(name, tuple(moves))


def _cordoned(node: Node) -> Node:
    return replace(node, spec=replace(node.spec, unschedulable=True))


def _successor(pod: Pod) -> Pod:
    """The pod that a controller makes in place of an evicted one."""
    made = pending_form(pod)
    return replace(made, metadata=replace(made.metadata, uid=f"{pod.uid}-moved"))


def drain_commands(node: str, pods: Sequence[Pod]) -> tuple[str, ...]:
    """The commands that empty a node. pods: all that are on it."""
    flags = ""
    owned = (pod for pod in pods if MIRROR_ANNOTATION not in pod.metadata.annotations)
    if any(map(runs_on_every_node, owned)):
        flags += " --ignore-daemonsets"
    if any(volume.empty_dir is not None for pod in pods for volume in pod.spec.volumes):
        flags += " --delete-emptydir-data"
    return (f"kubectl drain {node}{flags}",)


def drain_step(drain: Drain, search: CompactSearch, prices: Mapping[str, float]) -> DrainStep:
    """One step as people and programs read it."""
    pool = pool_of(search.nodes[drain.node])
    return DrainStep(
        drain.node,
        pool,
        prices.get(pool, 0.0) if prices else 1.0,
        tuple(Move(pod.key, home) for pod, home in drain.moves),
        drain_commands(drain.node, search.pods[drain.node]),
    )
