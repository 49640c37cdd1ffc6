"""Orphans: pods bound to nodes that are not in the input, and what becomes of them.

The pod garbage collector deletes such pods, and their controllers make them anew. So they are
pending again, except those that belong to the node itself (of DaemonSets, static pods) and those
that are being deleted: these are gone with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec
from msgspec.structs import replace

from stowplan.inputs.input_error import InputError
from stowplan.objects.pod import Pod, PodSpec, PodStatus

MODES = ("pending", "ignore", "error")
NAMED_MAX = 10
"""How many pods a note or an error names."""


class ReleasedPods(msgspec.Struct):
    """Pods after nodes have gone. pods: all that are left. pending, gone: pod -> its node."""

    pods: list[Pod]
    pending: dict[str, str]
    gone: dict[str, str]


def release_pods(
    pods: Iterable[Pod], has_gone: Collection[str] | None, there: set[str]
) -> ReleasedPods:
    """The pods without their bindings to nodes that have gone.

    has_gone: these nodes; None: every node that is not `there`. Finished pods stay as they are.
    """
    found = ReleasedPods([], {}, {})
    specs: dict[bytes, PodSpec] = {}
    for pod in pods:
        node = pod.node_name
        stays = node in there if has_gone is None else node not in has_gone
        if not node or stays or pod.is_finished:
            found.pods.append(pod)
        elif belongs_to_node(pod) or pod.metadata.deletion_timestamp is not None:
            found.gone[pod.key] = node
        else:
            found.pending[pod.key] = node
            found.pods.append(_unbound(pod, specs))
    return found


def belongs_to_node(pod: Pod) -> bool:
    """True for pods of DaemonSets and static pods: no other node takes them."""
    owner = pod.controller
    return owner is not None and owner.kind in ("DaemonSet", "Node")


def _unbound(pod: Pod, specs: dict[bytes, PodSpec]) -> Pod:
    """The pod as its controller would make it anew; those of a template share a spec."""
    spec = replace(pod.spec, node_name="")
    spec = specs.setdefault(msgspec.msgpack.encode(spec), spec)
    return replace(pod, spec=spec, status=PodStatus(phase="Pending"))


class OrphanResult(msgspec.Struct):
    """What became of the orphans. orphans: pod -> the node that it names."""

    pods: list[Pod]
    orphans: dict[str, str] = {}
    notes: list[str] = []


def resolve_orphans(pods: list[Pod], nodes: set[str], mode: str) -> OrphanResult:
    """The pods of a cluster with these nodes; raises InputError.

    mode: `pending`: orphans wait again; `ignore`: they are left out; `error`: they are refused.
    """
    found = release_pods(pods, None, nodes)
    orphans = found.pending | found.gone
    if not orphans:
        return OrphanResult(pods)
    if mode == "error":
        raise InputError(
            "cluster", "", f"{_bound(orphans)}: {list_pods(orphans)}", "their nodes too"
        )
    if mode == "ignore":
        kept = [pod for pod in found.pods if pod.key not in found.pending]
        return OrphanResult(kept, orphans, [f"{_bound(orphans)} left out: {list_pods(orphans)}"])
    notes = []
    if found.pending:
        notes.append(f"{_bound(found.pending)} pending again: {list_pods(found.pending)}")
    if found.gone:
        why = "gone with them: of DaemonSets, static, or being deleted"
        notes.append(f"{_bound(found.gone)} {why}: {list_pods(found.gone)}")
    return OrphanResult(found.pods, orphans, notes)


def _bound(pods: dict[str, str]) -> str:
    return f"{count_of(len(pods), 'pod')} bound to nodes that are not in the input"


def list_pods(pods: dict[str, str]) -> str:
    """Pods with their nodes, at most `NAMED_MAX` of them."""
    first = [f"{pod} (node {node})" for pod, node in list(pods.items())[:NAMED_MAX]]
    more = len(pods) - len(first)
    return ", ".join(first) + (f" and {more:,} more" if more else "")


def count_of(number: int, noun: str) -> str:
    """`1 pod`, `3 pods`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
