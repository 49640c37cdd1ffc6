"""Nodes of the page: copies of a node table's columns, and frames from two of them.

The thread that owns the table only copies arrays and lists (`copy_columns`); everything else, also
the comparison with the last copy, happens on the page's own thread.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from stowplan.columns.array_types import Ints
from stowplan.columns.nodetable import NodeTable
from stowplan.objects.devices.gpu_cards import CARD_MILLI
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.node import Node
from stowplan.plugins.gpu_share.card_ledger import CardLedger
from stowplan.plugins.gpu_share.gpu_card_columns import NO_CARD
from stowplan.web.model.page_frames import Array, FrameBody

ZONE = "topology.kubernetes.io/zone"
CORDONED, NOT_READY, TAINTED = 1, 2, 4
PODS = "pods"
MILLI, BYTES, COUNT = "milli", "bytes", "count"
CARD_RESOURCES = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe")
"""Resources of which each unit is a card."""
_OWN_TAINTS = ("node.kubernetes.io/unschedulable", "node.kubernetes.io/not-ready")


class NodeTableCopy(msgspec.Struct):
    """A copy of a node table. marks: position in its journal, which names the state. shape: see
    `NodeTable`. resources: first axis of the amounts. allocatable, requested: int64 (n_resources,
    n_nodes), base units; requested pods are their number. cards_left: int64 (n_nodes,
    n_cards_max), thousandths left of each shared GPU card, NO_CARD where there is none; None where
    cards are not shared."""

    marks: tuple[int, int]
    shape: int
    names: list[str]
    nodes: list[Node]
    resources: tuple[str, ...]
    allocatable: Ints
    requested: Ints
    cards_left: Ints | None = None


class NodeView(msgspec.Struct):
    """The columns of a copy as viewers have them. flags: uint8 (n_nodes,), bits. zones: number of
    the zone in `zone_names` of each node, 0 for none. cards: see `cards_of`."""

    columns: NodeTableCopy
    flags: Array
    zone_names: list[str]
    zones: Array
    cards: tuple[Array, Array] | None


def copy_columns(
    table: NodeTable, last: NodeTableCopy | None, *, shares_cards: bool = False
) -> NodeTableCopy | None:
    """A copy of the table; None where nothing has changed since `last`. shares_cards: whether the
    scheduler keeps shares of GPU cards."""
    marks = table.marks
    if last is not None and (marks, table.shape) == (last.marks, last.shape):
        return None
    resources = tuple(table.resources.values)
    n_nodes, n_resources = table.n_nodes, len(resources)
    allocatable, requested, _, pod_count = table.amounts
    found = NodeTableCopy(
        marks,
        table.shape,
        table.names.copy(),
        table.nodes.copy(),
        resources,
        allocatable[:n_resources, :n_nodes].copy(),
        requested[:n_resources, :n_nodes].copy(),
    )
    if PODS in resources and found.requested.shape[0] == n_resources:
        found.requested[resources.index(PODS)] = pod_count[:n_nodes]
    if shares_cards:
        found.cards_left = CardLedger.of(table).columns().left.copy()
    return found


def view_of(columns: NodeTableCopy, last: NodeView | None) -> NodeView:
    """Flags and zones of a copy; those of nodes that are the same objects as before are kept."""
    nodes = columns.nodes
    if last is not None and last.columns.names == columns.names:
        flags = last.flags.copy()
        before = last.columns.nodes
        changed = [row for row, node in enumerate(nodes) if node is not before[row]]
        for row in changed:
            flags[row] = flags_of(nodes[row])
        if not any(_zone(nodes[row]) != _zone(before[row]) for row in changed):
            return NodeView(columns, flags, last.zone_names, last.zones, cards_of(columns))
    else:
        flags = np.fromiter(map(flags_of, nodes), np.uint8, len(nodes))
    names, numbers = grouped(nodes, ZONE)
    return NodeView(columns, flags, names, numbers, cards_of(columns))


def is_same_view(before: NodeView, after: NodeView) -> bool:
    """True where viewers of one have what viewers of the other would get."""
    body = update_body(before, after)
    return body is not None and set(body.arrays) == {"rows"}


def flags_of(node: Node) -> int:
    """CORDONED, NOT_READY and TAINTED of a node, as bits."""
    flags = CORDONED if node.spec.unschedulable else 0
    if not is_ready(node):
        flags |= NOT_READY
    hard = ("NoSchedule", "NoExecute")
    if any(one.effect in hard and one.key not in _OWN_TAINTS for one in node.taints):
        flags |= TAINTED
    return flags


def is_ready(node: Node) -> bool:
    """False where the Ready condition is not True; True without one, as of nodes in manifests."""
    ready = [one.status for one in node.status.conditions if one.type == "Ready"]
    return not ready or ready[-1] == "True"


def grouped(nodes: Sequence[Node], key: str) -> tuple[list[str], Array]:
    """Values of a label, "" first and the others sorted, and the number of each node's value."""
    values = ["", *sorted({node.labels[key] for node in nodes if node.labels.get(key)})]
    numbers = {value: number for number, value in enumerate(values)}
    found = np.fromiter((numbers[node.labels.get(key, "")] for node in nodes), np.int64, len(nodes))
    return values, found


def unit_of(resource: str) -> str:
    """The unit of a resource's amounts: milli, bytes or count."""
    if resource == "cpu":
        return MILLI
    is_bytes = resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-")
    return BYTES if is_bytes else COUNT


def resource_trees(resources: Sequence[str]) -> list[Tree]:
    """Names and units, for JSON."""
    return [{"name": name, "unit": unit_of(name)} for name in resources]


def snapshot_body(view: NodeView) -> FrameBody:
    """All nodes."""
    columns = view.columns
    tree: Tree = {
        "names": columns.names,
        "resources": resource_trees(columns.resources),
        "groups": {ZONE: view.zone_names},
    }
    arrays: dict[str, Array] = {}
    for item, name in enumerate(columns.resources):
        arrays[f"allocatable:{name}"] = columns.allocatable[item]
        arrays[f"requested:{name}"] = columns.requested[item]
    arrays["flags"] = view.flags
    arrays[f"group:{ZONE}"] = view.zones
    if view.cards is not None:
        arrays["cards"], arrays["cardUsed"] = view.cards
    return FrameBody(tree, arrays)


def update_body(before: NodeView, after: NodeView) -> FrameBody | None:
    """What differs, by row; None where only a snapshot can say it. Without difference the frame has
    no rows."""
    old, new = before.columns, after.columns
    if old.names != new.names or old.resources != new.resources:
        return None
    if before.zone_names != after.zone_names or (before.zones != after.zones).any():
        return None
    changed: dict[str, Array] = {}
    touched = np.zeros(len(new.names), dtype=np.bool_)
    pairs = {"allocatable": (old.allocatable, new.allocatable)}
    pairs["requested"] = old.requested, new.requested
    for kind, (was, now) in pairs.items():
        for item in np.flatnonzero((was != now).any(axis=1)).tolist():
            changed[f"{kind}:{new.resources[item]}"] = now[item]
            touched |= was[item] != now[item]
    if (before.flags != after.flags).any():
        changed["flags"] = after.flags
        touched |= before.flags != after.flags
    rows = np.flatnonzero(touched)
    arrays: dict[str, Array] = {"rows": rows}
    arrays |= {name: values[rows] for name, values in changed.items()}
    known, cards = before.cards, after.cards
    if (known is None) != (cards is None):
        return None
    if known is not None and cards is not None:
        if (known[0] != cards[0]).any():
            return None
        if (known[1] != cards[1]).any():
            arrays["cardUsed"] = cards[1]
    return FrameBody({}, arrays)


def cards_of(columns: NodeTableCopy) -> tuple[Array, Array] | None:
    """Number of GPU cards of each node, and thousandths in use of each card; None without cards.

    Where cards are allocated whole, pods fill the first cards of a node here: which card a pod has
    is the device plugin's choice.
    """
    left = columns.cards_left
    if left is not None and (left != NO_CARD).any():
        is_card = left != NO_CARD
        return is_card.sum(axis=1), CARD_MILLI - left[is_card]
    items = [columns.resources.index(one) for one in CARD_RESOURCES if one in columns.resources]
    if not items:
        return None
    cards = np.minimum(columns.allocatable[items].sum(axis=0), 255)
    if not cards.any():
        return None
    used = np.minimum(columns.requested[items].sum(axis=0), cards)
    first = np.cumsum(cards) - cards
    place = np.arange(int(cards.sum())) - np.repeat(first, cards)
    return cards, np.where(place < np.repeat(used, cards), CARD_MILLI, 0)


def _zone(node: Node) -> str:
    return node.labels.get(ZONE, "")
