"""Builders of nodes and pods that say only what matters to a test.

    node("n1", cpu="4", memory="16Gi", zone="a", taints=["gpu=yes:NoSchedule"])
    pod("web", cpu="500m", labels={"app": "web"}, tolerations=["gpu"])

What the API writes as nested lists is a short text here: taints and tolerations as kubectl prints
them, selectors as it takes them (`app=web,tier in (a,b),!beta`), host ports as `80` or
`127.0.0.1:53/UDP`. A text that cannot be read raises MakeError.
"""

from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping, Sequence

from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import HOSTNAME_LABEL, ContainerImage, Node, NodeSpec, NodeStatus, Taint
from stowplan.objects.pod import (
    DEFAULT_SCHEDULER,
    Affinity,
    Container,
    ContainerPort,
    NodeAffinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodSchedulingGate,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from stowplan.objects.quantity import Quantity, value
from stowplan.objects.selectors import (
    NODE_NAME_FIELD,
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from stowplan.objects.volume import PVCVolumeSource, Volume

ZONE = "topology.kubernetes.io/zone"
REGION = "topology.kubernetes.io/region"
HOSTNAME = HOSTNAME_LABEL

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_TAINT = re.compile(r"(?P<key>[^=:]+)(=(?P<value>[^:]*))?:(?P<effect>\w+)")
_TOLERATION = re.compile(r"(?P<key>[^=:]+)(?P<equal>=(?P<value>[^:]*))?(:(?P<effect>\w+))?")
_PORT = re.compile(r"((?P<ip>[0-9a-fA-F.:]+):)?(?P<port>\d+)(/(?P<protocol>[A-Z]+))?")
_SET = re.compile(r"(?P<key>[^\s=!<>,()]+)\s+(?P<operator>in|notin)\s*\((?P<values>[^()]*)\)")
_COMPARED = re.compile(r"(?P<key>[^\s=!<>,()]+)\s*(?P<sign>!=|==?|[<>])\s*(?P<value>[^\s,()]*)")
_BARE = re.compile(r"(?P<absent>!?)\s*(?P<key>[^\s=!<>,()]+)")
_SIGNS = {"=": "In", "==": "In", "!=": "NotIn", ">": "Gt", "<": "Lt"}


class MakeError(ValueError):
    """An invalid short text of a builder: what it is for, the value and what was expected."""

    def __init__(self, what: str, got: str, wanted: str) -> None:
        super().__init__(f"{what} {got!r}: expected {wanted}")


# Nodes.


def node(
    name: str,
    *,
    cpu: Quantity | None = "4",
    memory: Quantity | None = "16Gi",
    pods: int | None = 110,
    resources: Mapping[str, Quantity] | None = None,
    zone: str = "",
    region: str = "",
    labels: Mapping[str, str] | None = None,
    taints: Iterable[str] = (),
    cordoned: bool = False,
    images: Mapping[str, Quantity] | None = None,
    features: Sequence[str] = (),
) -> Node:
    """A node with these amounts; None leaves a resource out.

    resources: other allocatable resources, by name. images: image name -> size. The hostname label
    is the name, `zone` and `region` set the topology labels; `labels` are added. features: those
    that the node declares.
    """
    offered = {"cpu": cpu, "memory": memory, "pods": None if pods is None else str(pods)}
    amounts = {key: amount for key, amount in offered.items() if amount is not None}
    places = {HOSTNAME: name, ZONE: zone, REGION: region}
    return Node(
        metadata=ObjectMeta(
            name=name,
            uid=name,
            labels={key: text for key, text in places.items() if text} | dict(labels or {}),
        ),
        spec=NodeSpec(unschedulable=cordoned, taints=tuple(taint(text) for text in taints)),
        status=NodeStatus(
            allocatable=amounts | dict(resources or {}),
            images=tuple(
                ContainerImage(names=(image,), size_bytes=value(size))
                for image, size in (images or {}).items()
            ),
            declared_features=tuple(features),
        ),
    )


def taint(text: str) -> Taint:
    """A taint from `key=value:Effect` or `key:Effect`."""
    found = _TAINT.fullmatch(text)
    if found is None or found["effect"] not in _EFFECTS:
        raise MakeError("taint", text, f"KEY[=VALUE]:EFFECT, effect one of {', '.join(_EFFECTS)}")
    return Taint(key=found["key"], value=found["value"] or "", effect=found["effect"])


# Pods.


def pod(
    name: str,
    *,
    namespace: str = "default",
    uid: str = "",
    on: str = "",
    nominated: str = "",
    cpu: Quantity | None = None,
    memory: Quantity | None = None,
    resources: Mapping[str, Quantity] | None = None,
    image: str = "",
    ports: Iterable[int | str] = (),
    containers: Sequence[Container] = (),
    init_containers: Sequence[Container] = (),
    overhead: Mapping[str, Quantity] | None = None,
    labels: Mapping[str, str] | None = None,
    priority: int | None = None,
    node_selector: Mapping[str, str] | None = None,
    affinity: Affinity | None = None,
    tolerations: Iterable[str] = (),
    spread: Sequence[TopologySpreadConstraint] = (),
    gates: Iterable[str] = (),
    claims: Iterable[str] = (),
    scheduler: str = DEFAULT_SCHEDULER,
    created_at: float | None = None,
) -> Pod:
    """A pod with these requests in one container, or with these `containers` instead.

    on: the node that it is bound to. nominated: the node that it preempted for. claims: names of
    PersistentVolumeClaims that it mounts. created_at: seconds since the epoch.
    """
    main = container("main", cpu=cpu, memory=memory, resources=resources, image=image, ports=ports)
    if containers and main != container("main"):
        raise MakeError("pod", name, "either containers, or cpu, memory, resources, image, ports")
    created = None
    if created_at is not None:
        created = datetime.datetime.fromtimestamp(created_at, datetime.UTC)
    return Pod(
        metadata=ObjectMeta(
            name=name,
            namespace=namespace,
            uid=uid or f"{namespace}/{name}",
            labels=dict(labels or {}),
            creation_timestamp=created,
        ),
        spec=PodSpec(
            node_name=on,
            scheduler_name=scheduler,
            containers=tuple(containers) or (main,),
            init_containers=tuple(init_containers),
            overhead=dict(overhead or {}),
            priority=priority,
            node_selector=None if node_selector is None else dict(node_selector),
            affinity=affinity,
            tolerations=tuple(toleration(text) for text in tolerations),
            topology_spread_constraints=tuple(spread),
            scheduling_gates=tuple(PodSchedulingGate(name=gate) for gate in gates),
            volumes=tuple(
                Volume(name=claim, persistent_volume_claim=PVCVolumeSource(claim_name=claim))
                for claim in claims
            ),
        ),
        status=PodStatus(nominated_node_name=nominated),
    )


def container(
    name: str,
    *,
    cpu: Quantity | None = None,
    memory: Quantity | None = None,
    resources: Mapping[str, Quantity] | None = None,
    image: str = "",
    ports: Iterable[int | str] = (),
    sidecar: bool = False,
) -> Container:
    """A container. ports: its host ports. sidecar: for an init container that keeps running."""
    asked = {"cpu": cpu, "memory": memory}
    requests = {key: amount for key, amount in asked.items() if amount is not None}
    return Container(
        name=name,
        image=image,
        resources=ResourceRequirements(requests=requests | dict(resources or {})),
        ports=tuple(host_port(text) for text in ports),
        restart_policy="Always" if sidecar else "",
    )


def host_port(text: int | str) -> ContainerPort:
    """A host port from `80`, `80/UDP` or `127.0.0.1:80/UDP`."""
    found = _PORT.fullmatch(str(text))
    if found is None:
        raise MakeError("host port", str(text), "[IP:]PORT[/PROTOCOL]")
    number = int(found["port"])
    return ContainerPort(
        container_port=number,
        host_port=number,
        host_ip=found["ip"] or "",
        protocol=found["protocol"] or "",
    )


def toleration(text: str) -> Toleration:
    """A toleration from `key=value:Effect`; without value any, without effect all, `*` any key."""
    found = _TOLERATION.fullmatch(text)
    if found is None or (found["effect"] or _EFFECTS[0]) not in _EFFECTS:
        wanted = f"KEY[=VALUE][:EFFECT] or *[:EFFECT], effect one of {', '.join(_EFFECTS)}"
        raise MakeError("toleration", text, wanted)
    return Toleration(
        key="" if found["key"] == "*" else found["key"],
        operator="Equal" if found["equal"] else "Exists",
        value=found["value"] or "",
        effect=found["effect"] or "",
    )


# Affinity and spreading.


def affinity(
    *,
    nodes: str | Iterable[str] = (),
    prefer_nodes: Mapping[str, int] | None = None,
    near: Iterable[PodAffinityTerm] = (),
    apart: Iterable[PodAffinityTerm] = (),
    prefer_near: Iterable[tuple[int, PodAffinityTerm]] = (),
    prefer_apart: Iterable[tuple[int, PodAffinityTerm]] = (),
) -> Affinity:
    """Where a pod must or prefers to run.

    nodes: node terms of which one must hold. prefer_nodes: node term -> weight. near, apart: pods
    to share a topology domain with, or not to.
    """
    terms = tuple(node_term(text) for text in ([nodes] if isinstance(nodes, str) else nodes))
    preferred = tuple(
        PreferredSchedulingTerm(weight=weight, preference=node_term(text))
        for text, weight in (prefer_nodes or {}).items()
    )
    required = NodeSelector(node_selector_terms=terms) if terms else None
    of_nodes = NodeAffinity(required=required, preferred=preferred)
    return Affinity(
        node_affinity=of_nodes if of_nodes != NodeAffinity() else None,
        pod_affinity=_pod_affinity(near, prefer_near),
        pod_anti_affinity=_pod_affinity(apart, prefer_apart),
    )


def _pod_affinity(
    required: Iterable[PodAffinityTerm], preferred: Iterable[tuple[int, PodAffinityTerm]]
) -> PodAffinity | None:
    whole = PodAffinity(
        required=tuple(required),
        preferred=tuple(
            WeightedPodAffinityTerm(weight=weight, pod_affinity_term=each)
            for weight, each in preferred
        ),
    )
    return whole if whole != PodAffinity() else None


def term(
    selector: str | None,
    topology_key: str,
    *,
    namespaces: Sequence[str] = (),
    namespace_selector: str | None = None,
) -> PodAffinityTerm:
    """Pods that `selector` selects, in one domain of `topology_key`; "" selects all, None none."""
    return PodAffinityTerm(
        label_selector=None if selector is None else label_selector(selector),
        topology_key=topology_key,
        namespaces=tuple(namespaces),
        namespace_selector=(
            None if namespace_selector is None else label_selector(namespace_selector)
        ),
    )


def spread(
    selector: str | None,
    topology_key: str,
    *,
    max_skew: int = 1,
    hard: bool = True,
    min_domains: int | None = None,
    match_label_keys: Sequence[str] = (),
    node_affinity_policy: str | None = None,
    node_taints_policy: str | None = None,
) -> TopologySpreadConstraint:
    """Spread the pods that `selector` selects. hard: refuse rather than score."""
    return TopologySpreadConstraint(
        max_skew=max_skew,
        topology_key=topology_key,
        when_unsatisfiable="DoNotSchedule" if hard else "ScheduleAnyway",
        label_selector=None if selector is None else label_selector(selector),
        min_domains=min_domains,
        node_affinity_policy=node_affinity_policy,
        node_taints_policy=node_taints_policy,
        match_label_keys=tuple(match_label_keys),
    )


# Selectors.


def label_selector(text: str) -> LabelSelector:
    """A label selector from `app=web,tier in (a,b),env notin (dev),rack,!beta`; "" selects all."""
    labels: dict[str, str] = {}
    others: list[LabelSelectorRequirement] = []
    for key, operator, values in _requirements(text):
        if operator in ("Gt", "Lt"):
            raise MakeError("label selector", text, "no < and >, which only node terms have")
        if operator == "In" and len(values) == 1 and key not in labels:
            labels[key] = values[0]
        else:
            others.append(LabelSelectorRequirement(key=key, operator=operator, values=values))
    return LabelSelector(match_labels=labels, match_expressions=tuple(others))


def node_term(text: str) -> NodeSelectorTerm:
    """A node selector term: as a label selector, and `cores>4`; `metadata.name` is the field."""
    found = [
        NodeSelectorRequirement(key=key, operator=operator, values=values)
        for key, operator, values in _requirements(text)
    ]
    return NodeSelectorTerm(
        match_expressions=tuple(each for each in found if each.key != NODE_NAME_FIELD),
        match_fields=tuple(each for each in found if each.key == NODE_NAME_FIELD),
    )


def _requirements(text: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """(key, operator, values) of each part of a selector's text."""
    # A comma inside brackets separates values, not parts.
    parts = [part.strip() for part in re.split(r",(?![^()]*\))", text)] if text.strip() else []
    return [_requirement(part, text) for part in parts]


def _requirement(part: str, text: str) -> tuple[str, str, tuple[str, ...]]:
    if found := _SET.fullmatch(part):
        operator = "In" if found["operator"] == "in" else "NotIn"
        return found["key"], operator, tuple(v.strip() for v in found["values"].split(","))
    if found := _COMPARED.fullmatch(part):
        return found["key"], _SIGNS[found["sign"]], (found["value"],)
    if found := _BARE.fullmatch(part):
        return found["key"], "DoesNotExist" if found["absent"] else "Exists", ()
    raise MakeError("selector", text, "parts such as a=b, a!=b, a in (b,c), a notin (b), a, !a")
