"""One node of the page: its resources, cards, taints and pods."""

from __future__ import annotations

from stowplan.columns.nodetable import NodeTable
from stowplan.columns.pods.podinfo import PodInfo
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.pod_requests import fit_requests
from stowplan.web.model.node_columns import CARD_RESOURCES, is_ready, unit_of
from stowplan.web.model.queue_tree import gang_key


def node_tree(table: NodeTable, row: int) -> Tree:
    """The node of a row; see `GET nodes/NAME`."""
    node = table.nodes[row]
    amounts = []
    for name in table.resources.values:
        offered, used = int(table.allocatable(name)[row]), int(table.requested(name)[row])
        if name == "pods":
            used = len(table.pods[row])
        if offered or used:
            amounts.append(
                {"name": name, "unit": unit_of(name), "allocatable": offered, "requested": used}
            )
    return {
        "name": node.name,
        "labels": node.labels,
        "unschedulable": node.spec.unschedulable,
        "ready": is_ready(node),
        "taints": [
            {"key": one.key, "value": one.value, "effect": one.effect} for one in node.taints
        ],
        "resources": amounts,
        "cards": _cards(amounts),
        "pods": [_pod_tree(info) for info in table.pods[row]],
    }


def _cards(amounts: list[Tree]) -> list[Tree]:
    """Cards that are allocated whole; pods fill the first ones here."""
    whole = [one for one in amounts if one["name"] in CARD_RESOURCES]
    n_cards = sum(one["allocatable"] for one in whole)
    n_used = sum(one["requested"] for one in whole)
    return [
        {"index": place, "used": 1000 if place < n_used else 0, "pods": []}
        for place in range(n_cards)
    ]


def _pod_tree(info: PodInfo) -> Tree:
    pod = info.pod
    started = pod.status.start_time
    return {
        "pod": pod.key,
        "priority": pod.priority,
        "requests": fit_requests(pod),
        "queue": "",
        "gang": gang_key(pod),
        "phase": pod.status.phase,
        "started": None if started is None else started.timestamp() * 1000,
    }
