"""Clusters by the dice: small, odd, and covering what rules read.

Vocabularies are small, so that selectors, taints, ports and images often meet. Objects are well
formed, though not all that an API server would let in. Any `Dice` will do: a seeded NumPy
generator, or a Hypothesis draw, for which 0, the plainest choice, is what it shrinks to.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from stowplan.columns import NodeTable
from stowplan.columns.nodetable import table_of
from stowplan.framework import Snapshot, World
from stowplan.objects.meta import Object, ObjectMeta
from stowplan.objects.node import ContainerImage, Node, NodeSpec, NodeStatus, Taint
from stowplan.objects.pod import (
    Affinity,
    Container,
    ContainerPort,
    ContainerStatus,
    NodeAffinity,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    PodResourceClaim,
    PodSchedulingGate,
    PodSpec,
    PodStatus,
    ResourceRequirements,
    RestartRule,
    Toleration,
    TopologySpreadConstraint,
    WeightedPodAffinityTerm,
)
from stowplan.objects.quantity import Quantity
from stowplan.objects.selectors import (
    LabelSelector,
    LabelSelectorRequirement,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
)
from stowplan.testing.dice import Dice, chance, number, pick, some
from stowplan.testing.generate_world import (
    APPS,
    NAMESPACES,
    ZONES,
    ephemeral_claims,
    volumes,
    world_objects,
)
from stowplan.testing.make import HOSTNAME, REGION, ZONE

_VALUES = {
    "disk": ("ssd", "hdd", ""),
    "cores": ("4", "16", "many"),
    ZONE: ZONES,
    HOSTNAME: ("n0", "n1", "n2", "n3"),
}
_TAINTS = tuple(
    Taint(key=key, value=value, effect=effect)
    for effect in ("NoSchedule", "PreferNoSchedule", "NoExecute")
    for key, value in (("gpu", "yes"), ("gpu", ""), ("team", "a"))
)
_CORDON = "node.kubernetes.io/unschedulable"
_IMAGES = {
    "nginx:latest": 180_000_000,
    "tool:2": 900_000_000,
    "cuda:12": 3_000_000_000,
    "tiny:1": 1_000_000,
}
_FEATURES = ("UserNamespacesHostNetworkSupport", "RestartAllContainersOnContainerExits")
_OFFERED: dict[str, tuple[Quantity, ...]] = {
    "cpu": ("16", "8", "16", "7.5", "2", "500m", "0"),
    "memory": ("64Gi", "8Gi", "64Gi", "20Gi", "1500M", "300Mi", "0"),
    "pods": ("110", "110", "110", "110", "2", "1", "0"),
}
_OFFERED_SOMETIMES: dict[str, tuple[Quantity, ...]] = {
    "nvidia.com/gpu": ("4", "1", "0"),
    "hugepages-2Mi": ("64Mi",),
    "ephemeral-storage": ("20Gi", "1Gi"),
    "example.com/dongle": ("1",),
    "unknown": ("5",),
}
_ASKED: dict[str, tuple[Quantity, ...]] = {
    "cpu": ("100m", "1", "0", "1500m", "100u"),
    "memory": ("128Mi", "1Gi", "0", "1.5Gi", "500M"),
    "nvidia.com/gpu": ("1", "2", "0"),
    "hugepages-2Mi": ("4Mi",),
    "ephemeral-storage": ("1Gi", "0"),
    "example.com/dongle": ("1",),
    "unknown": ("1",),
}
_POD_LEVEL = ("cpu", "memory")


class Scene(msgspec.Struct, frozen=True):
    """A cluster and pods to ask about. pods: bound; pending: not; objects: all that is neither."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    pending: tuple[Pod, ...]
    objects: tuple[Object, ...]

    def table(self) -> NodeTable:
        """The nodes and the bound pods, a new table each time."""
        return table_of(self.nodes, self.pods)

    def snapshot(self) -> Snapshot:
        """All that a decision reads, a new one each time."""
        return Snapshot(self.table(), World(self.objects))


def scene(dice: Dice, *, n_nodes: int = 8, n_pods: int = 12, n_pending: int = 6) -> Scene:
    """A cluster of this size; its pods are bound whether they fit or not.

    A few of the pods are bound to a node that is not there.
    """
    names = [f"n{i}" for i in range(n_nodes)]
    homes = [*names, "n-unseen"]
    nodes = tuple(node(dice, name) for name in names)
    pods = tuple(pod(dice, f"p{i}", on=pick(dice, homes)) for i in range(n_pods))
    pending = tuple(pending_pod(dice, f"q{i}", homes) for i in range(n_pending))
    objects = (*world_objects(dice, homes), *ephemeral_claims(dice, (*pods, *pending)))
    return Scene(nodes, pods, pending, objects)


# Nodes.


def node(dice: Dice, name: str) -> Node:
    """A node."""
    cordoned = chance(dice, 6)
    taints = some(dice, _TAINTS, 2) if chance(dice, 2) else ()
    if cordoned and chance(dice, 2):
        taints += (Taint(key=_CORDON, effect="NoSchedule"),)
    return Node(
        metadata=ObjectMeta(name=name, uid=name, labels=_node_labels(dice, name)),
        spec=NodeSpec(unschedulable=cordoned, taints=taints),
        status=NodeStatus(
            allocatable=_offered(dice),
            images=tuple(
                ContainerImage(names=(image, f"{image}@sha256:0"), size_bytes=_IMAGES[image])
                for image in some(dice, tuple(_IMAGES), 3)
            ),
            declared_features=some(dice, _FEATURES, 2),
        ),
    )


def _node_labels(dice: Dice, name: str) -> dict[str, str]:
    labels = {HOSTNAME: name}
    for key in ("disk", "cores"):
        if chance(dice, 2):
            labels[key] = pick(dice, _VALUES[key])
    if not chance(dice, 5):
        labels[ZONE] = pick(dice, ZONES)
    if chance(dice, 4):
        labels[REGION] = pick(dice, ("north", "south"))
    return labels


def _offered(dice: Dice) -> dict[str, Quantity]:
    offered = {name: pick(dice, amounts) for name, amounts in _OFFERED.items()}
    if chance(dice, 8):
        del offered[pick(dice, tuple(_OFFERED))]
    for name in some(dice, tuple(_OFFERED_SOMETIMES), 3):
        offered[name] = pick(dice, _OFFERED_SOMETIMES[name])
    return offered


# Pods.


def pending_pod(dice: Dice, name: str, node_names: Sequence[str]) -> Pod:
    """A pod that waits; once in a while for one of `node_names`, by its spec or its nomination."""
    made = pod(dice, name, on=pick(dice, node_names) if chance(dice, 10) else "")
    if not chance(dice, 8):
        return made
    return replace(made, status=PodStatus(nominated_node_name=pick(dice, node_names)))


def pod(dice: Dice, name: str, *, on: str = "") -> Pod:
    """A pod that is bound to the node `on`, or to none."""
    containers = tuple(_container(dice, f"c{i}") for i in range(number(dice, 1, 2)))
    in_user_namespace = chance(dice, 8)
    spec = PodSpec(
        node_name=on,
        containers=containers,
        init_containers=_init_containers(dice),
        priority=pick(dice, (None, 0, 10, 1000, -5)),
        preemption_policy=pick(dice, (None, "Never", "PreemptLowerPriority")),
        node_selector=_node_selector(dice),
        affinity=_affinity(dice) if chance(dice, 2) else None,
        tolerations=tuple(_toleration(dice) for _ in range(number(dice, 0, 2))),
        topology_spread_constraints=_spread(dice),
        overhead={"cpu": "50m", "memory": "20Mi"} if chance(dice, 8) else {},
        resources=_pod_level(dice),
        scheduling_gates=(PodSchedulingGate(name="later"),) if chance(dice, 10) else (),
        resource_claims=_resource_claims(dice),
        volumes=volumes(dice),
        host_network=in_user_namespace or chance(dice, 12),
        host_users=False if in_user_namespace else None,
    )
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace=pick(dice, NAMESPACES), uid=name, labels=_pod_labels(dice)
        ),
        spec=spec,
        status=_resizing(dice, containers[0]) if on and chance(dice, 8) else PodStatus(),
    )


def _pod_labels(dice: Dice) -> dict[str, str]:
    labels = {"app": pick(dice, APPS)} if not chance(dice, 4) else {}
    if chance(dice, 3):
        labels["tier"] = pick(dice, ("front", "back"))
    return labels


def _requests(dice: Dice) -> dict[str, Quantity]:
    names = _POD_LEVEL if not chance(dice, 3) else some(dice, tuple(_ASKED), 4)
    return {name: pick(dice, _ASKED[name]) for name in names}


def _container(dice: Dice, name: str) -> Container:
    return Container(
        name=name,
        image=pick(dice, ("", "nginx", "nginx:latest", "cuda:12", "tool:2", "nowhere:1")),
        resources=ResourceRequirements(requests=_requests(dice)),
        ports=(_port(dice),) if chance(dice, 4) else (),
        restart_policy_rules=(RestartRule(action="RestartAllContainers"),)
        if chance(dice, 16)
        else (),
    )


def _port(dice: Dice) -> ContainerPort:
    port = pick(dice, (80, 53, 0))
    return ContainerPort(
        container_port=port or 8080,
        host_port=port,
        host_ip=pick(dice, ("", "0.0.0.0", "10.0.0.1", "127.0.0.1")),
        protocol=pick(dice, ("", "TCP", "UDP")),
    )


def _init_containers(dice: Dice) -> tuple[Container, ...]:
    if not chance(dice, 4):
        return ()
    made = [_container(dice, f"i{i}") for i in range(number(dice, 1, 3))]
    return tuple(replace(c, restart_policy=pick(dice, ("", "Always"))) for c in made)


def _pod_level(dice: Dice) -> ResourceRequirements | None:
    if not chance(dice, 8):
        return None
    return ResourceRequirements(
        requests={name: pick(dice, _ASKED[name]) for name in some(dice, _POD_LEVEL, 2)}
    )


def _resource_claims(dice: Dice) -> tuple[PodResourceClaim, ...]:
    return (PodResourceClaim(name="r", resource_claim_name="card"),) if chance(dice, 12) else ()


def _resizing(dice: Dice, container: Container) -> PodStatus:
    """The status of a pod whose first container is being resized in place."""
    running = ResourceRequirements(requests={"cpu": pick(dice, _ASKED["cpu"])})
    report = ContainerStatus(name=container.name, resources=running)
    return PodStatus(phase="Running", container_statuses=(report,))


def _toleration(dice: Dice) -> Toleration:
    key = pick(dice, ("gpu", "team", _CORDON, ""))
    operator = pick(dice, ("Exists", "Equal", "")) if key else "Exists"
    return Toleration(
        key=key,
        operator=operator,
        value="" if operator == "Exists" else pick(dice, ("yes", "a", "")),
        effect=pick(dice, ("", "NoSchedule", "PreferNoSchedule", "NoExecute")),
    )


# Where a pod wants to be.


def _node_selector(dice: Dice) -> dict[str, str] | None:
    if not chance(dice, 6):
        return None
    key = pick(dice, tuple(_VALUES))
    return {key: pick(dice, _VALUES[key])}


def _affinity(dice: Dice) -> Affinity:
    return Affinity(
        node_affinity=_node_affinity(dice) if chance(dice, 2) else None,
        pod_affinity=_pod_affinity(dice) if chance(dice, 3) else None,
        pod_anti_affinity=_pod_affinity(dice) if chance(dice, 3) else None,
    )


def _node_affinity(dice: Dice) -> NodeAffinity:
    terms = tuple(_node_term(dice) for _ in range(number(dice, 1, 2)))
    return NodeAffinity(
        required=NodeSelector(node_selector_terms=terms) if chance(dice, 2) else None,
        preferred=tuple(
            PreferredSchedulingTerm(weight=number(dice, 1, 100), preference=_node_term(dice))
            for _ in range(number(dice, 0, 2))
        ),
    )


def _node_term(dice: Dice) -> NodeSelectorTerm:
    by_name = NodeSelectorRequirement(
        key="metadata.name",
        operator=pick(dice, ("In", "NotIn")),
        values=(pick(dice, _VALUES[HOSTNAME]),),
    )
    return NodeSelectorTerm(
        match_expressions=tuple(_node_requirement(dice) for _ in range(number(dice, 0, 2))),
        match_fields=(by_name,) if chance(dice, 6) else (),
    )


def _node_requirement(dice: Dice) -> NodeSelectorRequirement:
    key = pick(dice, tuple(_VALUES))
    operator = pick(dice, ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return NodeSelectorRequirement(key="cores", operator=operator, values=("5",))
    values = () if "Exist" in operator else (pick(dice, _VALUES[key]), pick(dice, _VALUES[key]))
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


def _pod_affinity(dice: Dice) -> PodAffinity:
    return PodAffinity(
        required=tuple(_term(dice) for _ in range(number(dice, 0, 2))),
        preferred=tuple(
            WeightedPodAffinityTerm(weight=number(dice, 1, 100), pod_affinity_term=_term(dice))
            for _ in range(number(dice, 0, 2))
        ),
    )


def _term(dice: Dice) -> PodAffinityTerm:
    of_prod = LabelSelector(match_labels={"name": "prod"})
    return PodAffinityTerm(
        label_selector=_label_selector(dice),
        topology_key=pick(dice, (ZONE, HOSTNAME, "disk")),
        namespaces=some(dice, NAMESPACES, 2) if chance(dice, 4) else (),
        namespace_selector=pick(dice, (of_prod, LabelSelector())) if chance(dice, 4) else None,
    )


def _label_selector(dice: Dice) -> LabelSelector | None:
    operator = pick(dice, ("In", "NotIn", "Exists", "DoesNotExist"))
    values = () if "Exist" in operator else (pick(dice, APPS),)
    requirement = LabelSelectorRequirement(key="app", operator=operator, values=values)
    return pick(
        dice,
        (
            LabelSelector(match_labels={"app": pick(dice, APPS)}),
            LabelSelector(match_expressions=(requirement,)),
            LabelSelector(),
            None,
        ),
    )


def _spread(dice: Dice) -> tuple[TopologySpreadConstraint, ...]:
    if not chance(dice, 3):
        return ()
    return tuple(_constraint(dice) for _ in range(number(dice, 1, 2)))


def _constraint(dice: Dice) -> TopologySpreadConstraint:
    hard = not chance(dice, 2)
    return TopologySpreadConstraint(
        max_skew=number(dice, 1, 2),
        topology_key=pick(dice, (ZONE, HOSTNAME, "disk")),
        when_unsatisfiable="DoNotSchedule" if hard else "ScheduleAnyway",
        label_selector=_label_selector(dice),
        min_domains=pick(dice, (None, 2, 5)) if hard else None,
        node_affinity_policy=pick(dice, (None, "Honor", "Ignore")),
        node_taints_policy=pick(dice, (None, "Honor", "Ignore")),
        match_label_keys=("tier",) if chance(dice, 5) else (),
    )
