"""Targets of changes: the nodes, workloads and pods that their texts name."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from stowplan.apis.machinery.label_selector import SelectorParseError, parse_label_selector
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.cluster_reader import Cluster
from stowplan.insight.pod_owners import OWNER_KINDS, POD_NAMES, owners_of
from stowplan.insight.what_if.requested_changes import RequestedChange
from stowplan.objects.kai.kai_kinds import KaiPodGroupObject, KaiQueueObject
from stowplan.objects.meta import NamespacedObject, Object
from stowplan.objects.node import Node, Taint, zone_key

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_OTHER_KINDS: Mapping[str, str] = {
    name: kind
    for kind, names in {
        "PodDisruptionBudget": "poddisruptionbudget poddisruptionbudgets pdb",
        "PriorityClass": "priorityclass priorityclasses pc",
        "PodGroup": "podgroup podgroups pg",
        "Queue": "queue queues q",
        "Node": "node nodes no",
        "Service": "service services svc",
        "PersistentVolume": "persistentvolume persistentvolumes pv",
        "PersistentVolumeClaim": "persistentvolumeclaim persistentvolumeclaims pvc",
        "StorageClass": "storageclass storageclasses sc",
    }.items()
    for name in names.split()
}
_PLURALS = {
    "Pod": "pods",
    "Deployment": "deployments.apps",
    "ReplicaSet": "replicasets.apps",
    "PriorityClass": "priorityclasses.scheduling.k8s.io",
    "StorageClass": "storageclasses.storage.k8s.io",
}
_WITHOUT_NAMESPACE = ("PriorityClass", "Queue", "Node", "PersistentVolume", "StorageClass")
_KIND_OF_TYPE: Mapping[type[Object], str] = {
    KaiQueueObject: "Queue",
    KaiPodGroupObject: "PodGroup",
}
"""Types that are not named as their kinds."""


class Target(NamedTuple):
    """KIND/NAME of a change. namespace: "" for kinds without one."""

    kind: str
    namespace: str
    name: str

    @property
    def text(self) -> str:
        """The target in kubectl's notation."""
        return f"{self.kind.lower()}/{self.name}"


def target_of(change: RequestedChange, text: str, namespace: str) -> Target:
    """KIND/NAME or NAMESPACE/KIND/NAME; raises InputError."""
    parts = text.split("/")
    if len(parts) == 3:
        namespace, *parts = parts
    if len(parts) != 2 or not all(parts):
        raise change.error(f"{text!r}: expected KIND/NAME, or NAMESPACE/KIND/NAME")
    word, name = parts
    known = {**OWNER_KINDS, **_OTHER_KINDS, **dict.fromkeys(POD_NAMES, "Pod")}
    kind = known.get(word.lower())
    if kind is None:
        hint = did_you_mean(word, known)
        raise change.error(
            f'the server doesn\'t have a resource type "{word}"' + (f" ({hint})" if hint else "")
        )
    return Target(kind, "" if kind in _WITHOUT_NAMESPACE else namespace, name)


def not_found(change: RequestedChange, target: Target, cluster: Cluster) -> Exception:
    """The error for a target that does not exist."""
    plural = _PLURALS.get(target.kind, f"{target.kind.lower()}s")
    if not target.namespace:
        known = [one.name for one in cluster.objects if _kind_of(one) == target.kind]
        hint = did_you_mean(target.name, known)
        return change.error(f'{plural} "{target.name}" not found' + (f" ({hint})" if hint else ""))
    elsewhere: dict[str, None] = {}
    names: dict[str, None] = {
        one.name: None
        for one in cluster.objects
        if isinstance(one, NamespacedObject)
        and one.namespace == target.namespace
        and _kind_of(one) == target.kind
    }
    for pod in cluster.pods:
        owned = [name for kind, name in owners_of(pod) if kind == target.kind]
        for name in owned if target.kind != "Pod" else [pod.name]:
            if name == target.name:
                elsewhere[pod.namespace] = None
            elif pod.namespace == target.namespace:
                names[name] = None
    hint = f" ({did_you_mean(target.name, names)})" if did_you_mean(target.name, names) else ""
    if elsewhere:
        word = target.kind.lower()
        hint = f' (did you mean "{next(iter(elsewhere))}/{word}/{target.name}"?)'
    return change.error(
        f'{plural} "{target.name}" not found in namespace "{target.namespace}"{hint}'
    )


def _kind_of(one: Object) -> str:
    return _KIND_OF_TYPE.get(type(one), type(one).__name__)


def object_of(target: Target, objects: Iterable[Object]) -> Object | None:
    """The object of a target, if it is in the input."""
    for one in objects:
        is_there = not isinstance(one, NamespacedObject) or one.namespace == target.namespace
        if is_there and _kind_of(one) == target.kind and one.name == target.name:
            return one
    return None


# Nodes.


def node_of(change: RequestedChange, name: str, nodes: Mapping[str, Node]) -> Node:
    """The node of a name; raises InputError."""
    name = name.removeprefix("node/")
    if name not in nodes:
        hint = did_you_mean(name, nodes)
        raise change.error(f'nodes "{name}" not found' + (f" ({hint})" if hint else ""))
    return nodes[name]


def drained_nodes(change: RequestedChange, nodes: Mapping[str, Node]) -> list[Node]:
    """The nodes of a zone, the node of a name, or those that a label selector matches."""
    text = change.text
    by_name = nodes.get(text.removeprefix("node/"))
    in_zone = [node for node in nodes.values() if zone_key(node)[1] == text]
    if by_name is not None and in_zone:
        raise change.error(
            f"{text!r} is a node and a zone: use kubernetes.io/hostname={text} or "
            f"topology.kubernetes.io/zone={text}"
        )
    found = in_zone if by_name is None else [by_name]
    if not found and re.search(r"[=!,(\s]|/", text):
        try:
            requirements = parse_label_selector(text)
        except SelectorParseError as problem:
            raise change.error(str(problem)) from None
        found = [n for n in nodes.values() if all(r.matches(n.labels) for r in requirements)]
    if not found:
        zones = dict.fromkeys(zone_key(node)[1] for node in nodes.values() if zone_key(node)[1])
        hint = did_you_mean(text, [*nodes, *zones])
        known = f"; zones: {', '.join(zones)}" if zones else ""
        raise change.error(
            f"no node is named so, is in such a zone or has such labels{known}"
            + (f" ({hint})" if hint else "")
        )
    return found


def taint_change(change: RequestedChange) -> tuple[str, Taint, bool]:
    """(node, taint, whether it is removed) of NODE=KEY=VALUE:EFFECT, in kubectl's spelling.

    A `-` at the end removes; then value and effect may be left out. Raises InputError.
    """
    node, equals, spec = change.text.partition("=")
    removes = spec.endswith("-")
    left, colon, effect = spec.removesuffix("-").rpartition(":")
    if not colon and removes:
        left, effect = effect, ""
    key, _, value = left.partition("=")
    if not equals or not node or not key:
        raise change.error("expected NODE=KEY=VALUE:EFFECT, or NODE=KEY- to remove")
    if effect not in EFFECTS and not (removes and not effect):
        raise change.error(
            f"invalid taint effect: {effect!r}: expected one of {', '.join(EFFECTS)}"
        )
    return node, Taint(key, value, effect), removes


def label_change(change: RequestedChange) -> tuple[str, str, str | None]:
    """(node, key, value) of NODE=KEY=VALUE; value None for NODE=KEY-, which removes it."""
    node, equals, rest = change.text.partition("=")
    key, second, value = rest.partition("=")
    if equals and node and key and second:
        return node, key, value
    if equals and node and rest.endswith("-") and len(rest) > 1:
        return node, rest.removesuffix("-"), None
    raise change.error("expected NODE=KEY=VALUE, or NODE=KEY- to remove")


def count_after(change: RequestedChange, least: int) -> tuple[str, int]:
    """(what, number) of WHAT=N; raises InputError for a number that is not `least` to 9,999,999."""
    what, equals, number = change.text.rpartition("=")
    if not equals or not what or not re.fullmatch(r"\d{1,7}", number) or int(number) < least:
        raise change.error(f"expected a whole number from {least} to 9999999 after =")
    return what, int(number)
