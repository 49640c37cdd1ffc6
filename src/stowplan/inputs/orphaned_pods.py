"""Orphaned pods: bound to nodes that are not in the input.

The pod garbage collector deletes such pods, and their controllers create them again. So they become
pending, except pods that belong to the node (DaemonSets, static pods) and pods that are being
deleted, which are removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from stowplan.inputs.counts import count_of
from stowplan.inputs.input_error import InputError
from stowplan.objects.pod import Pod, PodSpec, PodStatus

MODES = ("pending", "ignore", "error")
NAMED_MAX = 10
"""Pods named in a note or an error."""


class ReleasedPods(msgspec.Struct):
    """Pods after the removal of nodes. pods: the rest. pending, gone: pod -> its node."""

    pods: list[Pod]
    pending: dict[str, str]
    gone: dict[str, str]


def release_pods(
    pods: Iterable[Pod], removed: Collection[str] | None, there: set[str]
) -> ReleasedPods:
    """The pods without bindings to removed nodes.

    removed: names of removed nodes; None: all nodes not in `there`. Finished pods are kept.
    """
    found = ReleasedPods([], {}, {})
    specs: dict[bytes, PodSpec] = {}
    for pod in pods:
        node = pod.node_name
        stays = node in there if removed is None else node not in removed
        if not node or stays or pod.is_finished:
            found.pods.append(pod)
        elif belongs_to_node(pod) or pod.metadata.deletion_timestamp is not None:
            found.gone[pod.key] = node
        else:
            found.pending[pod.key] = node
            found.pods.append(_unbound(pod, specs))
    return found


def belongs_to_node(pod: Pod) -> bool:
    """True for DaemonSet pods and static pods, which cannot move."""
    owner = pod.controller
    return owner is not None and owner.kind in ("DaemonSet", "Node")


def _unbound(pod: Pod, specs: dict[bytes, PodSpec]) -> Pod:
    """The pod as created again by its controller; equal specs are shared."""
    spec = replace(pod.spec, node_name="")
    spec = specs.setdefault(msgspec.msgpack.encode(spec), spec)
    return replace(pod, spec=spec, status=PodStatus(phase="Pending"))


class OrphanResult(msgspec.Struct):
    """Pods after the treatment of orphans. orphans: pod -> its missing node."""

    pods: list[Pod]
    orphans: dict[str, str] = {}
    notes: list[str] = []


def resolve_orphans(pods: list[Pod], nodes: set[str], mode: str) -> OrphanResult:
    """The pods of a cluster with these nodes; raises InputError.

    mode: `pending`: orphans become pending; `ignore`: they are left out; `error`: InputError.
    """
    found = release_pods(pods, None, nodes)
    orphans = found.pending | found.gone
    if not orphans:
        return OrphanResult(pods)
    if mode == "error":
        raise InputError.at("cluster", "", f"{_bound(orphans)}: {list_pods(orphans)}")
    if mode == "ignore":
        kept = [pod for pod in found.pods if pod.key not in found.pending]
        notes = [f"{_bound(orphans, ' left out,')}: {list_pods(orphans)}"]
        return OrphanResult(kept, orphans, notes)
    notes = []
    if found.pending:
        notes.append(f"{_bound(found.pending, ' pending again,')}: {list_pods(found.pending)}")
    if found.gone:
        why = " removed (of DaemonSets, static, or being deleted),"
        notes.append(f"{_bound(found.gone, why)}: {list_pods(found.gone)}")
    return OrphanResult(found.pods, orphans, notes)


def _bound(pods: dict[str, str], treatment: str = "") -> str:
    return f"{count_of(len(pods), 'pod')}{treatment} bound to nodes that are not in the input"


def list_pods(pods: dict[str, str]) -> str:
    """Pods with their nodes, abbreviated after `NAMED_MAX`."""
    first = [f"{pod} (node {node})" for pod, node in list(pods.items())[:NAMED_MAX]]
    more = len(pods) - len(first)
    return ", ".join(first) + (f" and {more:,} more" if more else "")
