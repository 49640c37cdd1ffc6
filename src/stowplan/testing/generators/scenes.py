"""Generated clusters: small, unusual, and covering what plugins read.

Vocabularies are small, so that selectors, taints, ports and images often match. Objects are well
formed, though an API server would not admit all of them. Any `RandomSource` will do: a seeded NumPy
generator, or a Hypothesis draw, which shrinks toward 0, the plainest choice.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from stowplan._deprecated import deprecated_keywords
from stowplan.columns import NodeTable
from stowplan.columns.nodetable import table_of
from stowplan.framework import ObjectStore, Snapshot
from stowplan.objects.meta import Object, ObjectMeta
from stowplan.objects.node import ContainerImage, Node, NodeSpec, NodeStatus, Taint
from stowplan.objects.pod import (
    Affinity,
    Container,
    ContainerPort,
    ContainerRestartRule,
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
from stowplan.testing.builders import HOSTNAME, REGION, ZONE
from stowplan.testing.generators.api_objects import (
    APPS,
    NAMESPACES,
    ZONES,
    ephemeral_claims,
    generate_objects,
    volumes,
)
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int, sample

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
_ALLOCATABLE: dict[str, tuple[Quantity, ...]] = {
    "cpu": ("16", "8", "16", "7.5", "2", "500m", "0"),
    "memory": ("64Gi", "8Gi", "64Gi", "20Gi", "1500M", "300Mi", "0"),
    "pods": ("110", "110", "110", "110", "2", "1", "0"),
}
_OPTIONAL_ALLOCATABLE: dict[str, tuple[Quantity, ...]] = {
    "nvidia.com/gpu": ("4", "1", "0"),
    "hugepages-2Mi": ("64Mi",),
    "ephemeral-storage": ("20Gi", "1Gi"),
    "example.com/dongle": ("1",),
    "unknown": ("5",),
}
_REQUESTED: dict[str, tuple[Quantity, ...]] = {
    "cpu": ("100m", "1", "0", "1500m", "100u"),
    "memory": ("128Mi", "1Gi", "0", "1.5Gi", "500M"),
    "nvidia.com/gpu": ("1", "2", "0"),
    "hugepages-2Mi": ("4Mi",),
    "ephemeral-storage": ("1Gi", "0"),
    "example.com/dongle": ("1",),
    "unknown": ("1",),
}
_POD_LEVEL = ("cpu", "memory")


class GeneratedCluster(msgspec.Struct, frozen=True):
    """A cluster and pending pods. pods: bound; pending: not bound; objects: all others."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    pending: tuple[Pod, ...]
    objects: tuple[Object, ...]

    def table(self) -> NodeTable:
        """The nodes and the bound pods, a new table each time."""
        return table_of(self.nodes, self.pods)

    def snapshot(self) -> Snapshot:
        """A new snapshot each time."""
        return Snapshot(self.table(), ObjectStore(self.objects))


@deprecated_keywords(dice="rng")
def generate_cluster(
    rng: RandomSource, *, n_nodes: int = 8, n_pods: int = 12, n_pending: int = 6
) -> GeneratedCluster:
    """A cluster of this size; its pods are bound whether they fit or not.

    A few of the pods are bound to a node that does not exist.
    """
    names = [f"n{i}" for i in range(n_nodes)]
    homes = [*names, "n-unseen"]
    nodes = tuple(node(rng, name) for name in names)
    pods = tuple(pod(rng, f"p{i}", on=pick(rng, homes)) for i in range(n_pods))
    pending = tuple(pending_pod(rng, f"q{i}", homes) for i in range(n_pending))
    objects = (*generate_objects(rng, homes), *ephemeral_claims(rng, (*pods, *pending)))
    return GeneratedCluster(nodes, pods, pending, objects)


# Nodes.


def node(rng: RandomSource, name: str) -> Node:
    """A node."""
    cordoned = chance(rng, 6)
    taints = sample(rng, _TAINTS, 2) if chance(rng, 2) else ()
    if cordoned and chance(rng, 2):
        taints += (Taint(key=_CORDON, effect="NoSchedule"),)
    return Node(
        metadata=ObjectMeta(name=name, uid=name, labels=_node_labels(rng, name)),
        spec=NodeSpec(unschedulable=cordoned, taints=taints),
        status=NodeStatus(
            allocatable=_allocatable(rng),
            images=tuple(
                ContainerImage(names=(image, f"{image}@sha256:0"), size_bytes=_IMAGES[image])
                for image in sample(rng, tuple(_IMAGES), 3)
            ),
            declared_features=sample(rng, _FEATURES, 2),
        ),
    )


def _node_labels(rng: RandomSource, name: str) -> dict[str, str]:
    labels = {HOSTNAME: name}
    for key in ("disk", "cores"):
        if chance(rng, 2):
            labels[key] = pick(rng, _VALUES[key])
    if not chance(rng, 5):
        labels[ZONE] = pick(rng, ZONES)
    if chance(rng, 4):
        labels[REGION] = pick(rng, ("north", "south"))
    return labels


def _allocatable(rng: RandomSource) -> dict[str, Quantity]:
    offered = {name: pick(rng, amounts) for name, amounts in _ALLOCATABLE.items()}
    if chance(rng, 8):
        del offered[pick(rng, tuple(_ALLOCATABLE))]
    for name in sample(rng, tuple(_OPTIONAL_ALLOCATABLE), 3):
        offered[name] = pick(rng, _OPTIONAL_ALLOCATABLE[name])
    return offered


# Pods.


def pending_pod(rng: RandomSource, name: str, node_names: Sequence[str]) -> Pod:
    """A pending pod; occasionally with one of `node_names` in its spec or its nomination."""
    made = pod(rng, name, on=pick(rng, node_names) if chance(rng, 10) else "")
    if not chance(rng, 8):
        return made
    return replace(made, status=PodStatus(nominated_node_name=pick(rng, node_names)))


def pod(rng: RandomSource, name: str, *, on: str = "") -> Pod:
    """A pod that is bound to the node `on`, or pending."""
    containers = tuple(_container(rng, f"c{i}") for i in range(random_int(rng, 1, 2)))
    in_user_namespace = chance(rng, 8)
    spec = PodSpec(
        node_name=on,
        containers=containers,
        init_containers=_init_containers(rng),
        priority=pick(rng, (None, 0, 10, 1000, -5)),
        preemption_policy=pick(rng, (None, "Never", "PreemptLowerPriority")),
        node_selector=_node_selector(rng),
        affinity=_affinity(rng) if chance(rng, 2) else None,
        tolerations=tuple(_toleration(rng) for _ in range(random_int(rng, 0, 2))),
        topology_spread_constraints=_spread(rng),
        overhead={"cpu": "50m", "memory": "20Mi"} if chance(rng, 8) else {},
        resources=_pod_level(rng),
        scheduling_gates=(PodSchedulingGate(name="later"),) if chance(rng, 10) else (),
        resource_claims=_resource_claims(rng),
        volumes=volumes(rng),
        host_network=in_user_namespace or chance(rng, 12),
        host_users=False if in_user_namespace else None,
    )
    return Pod(
        metadata=ObjectMeta(
            name=name, namespace=pick(rng, NAMESPACES), uid=name, labels=_pod_labels(rng)
        ),
        spec=spec,
        status=_resizing(rng, containers[0]) if on and chance(rng, 8) else PodStatus(),
    )


def _pod_labels(rng: RandomSource) -> dict[str, str]:
    labels = {"app": pick(rng, APPS)} if not chance(rng, 4) else {}
    if chance(rng, 3):
        labels["tier"] = pick(rng, ("front", "back"))
    return labels


def _requests(rng: RandomSource) -> dict[str, Quantity]:
    names = _POD_LEVEL if not chance(rng, 3) else sample(rng, tuple(_REQUESTED), 4)
    return {name: pick(rng, _REQUESTED[name]) for name in names}


def _container(rng: RandomSource, name: str) -> Container:
    return Container(
        name=name,
        image=pick(rng, ("", "nginx", "nginx:latest", "cuda:12", "tool:2", "nowhere:1")),
        resources=ResourceRequirements(requests=_requests(rng)),
        ports=(_port(rng),) if chance(rng, 4) else (),
        restart_policy_rules=(ContainerRestartRule(action="RestartAllContainers"),)
        if chance(rng, 16)
        else (),
    )


def _port(rng: RandomSource) -> ContainerPort:
    port = pick(rng, (80, 53, 0))
    return ContainerPort(
        container_port=port or 8080,
        host_port=port,
        host_ip=pick(rng, ("", "0.0.0.0", "10.0.0.1", "127.0.0.1")),
        protocol=pick(rng, ("", "TCP", "UDP")),
    )


def _init_containers(rng: RandomSource) -> tuple[Container, ...]:
    if not chance(rng, 4):
        return ()
    made = [_container(rng, f"i{i}") for i in range(random_int(rng, 1, 3))]
    return tuple(replace(c, restart_policy=pick(rng, ("", "Always"))) for c in made)


def _pod_level(rng: RandomSource) -> ResourceRequirements | None:
    if not chance(rng, 8):
        return None
    return ResourceRequirements(
        requests={name: pick(rng, _REQUESTED[name]) for name in sample(rng, _POD_LEVEL, 2)}
    )


def _resource_claims(rng: RandomSource) -> tuple[PodResourceClaim, ...]:
    return (PodResourceClaim(name="r", resource_claim_name="card"),) if chance(rng, 12) else ()


def _resizing(rng: RandomSource, container: Container) -> PodStatus:
    """The status of a pod whose first container is being resized in place."""
    running = ResourceRequirements(requests={"cpu": pick(rng, _REQUESTED["cpu"])})
    report = ContainerStatus(name=container.name, resources=running)
    return PodStatus(phase="Running", container_statuses=(report,))


def _toleration(rng: RandomSource) -> Toleration:
    key = pick(rng, ("gpu", "team", _CORDON, ""))
    operator = pick(rng, ("Exists", "Equal", "")) if key else "Exists"
    return Toleration(
        key=key,
        operator=operator,
        value="" if operator == "Exists" else pick(rng, ("yes", "a", "")),
        effect=pick(rng, ("", "NoSchedule", "PreferNoSchedule", "NoExecute")),
    )


# Where a pod wants to be.


def _node_selector(rng: RandomSource) -> dict[str, str] | None:
    if not chance(rng, 6):
        return None
    key = pick(rng, tuple(_VALUES))
    return {key: pick(rng, _VALUES[key])}


def _affinity(rng: RandomSource) -> Affinity:
    return Affinity(
        node_affinity=_node_affinity(rng) if chance(rng, 2) else None,
        pod_affinity=_pod_affinity(rng) if chance(rng, 3) else None,
        pod_anti_affinity=_pod_affinity(rng) if chance(rng, 3) else None,
    )


def _node_affinity(rng: RandomSource) -> NodeAffinity:
    terms = tuple(_node_term(rng) for _ in range(random_int(rng, 1, 2)))
    return NodeAffinity(
        required=NodeSelector(node_selector_terms=terms) if chance(rng, 2) else None,
        preferred=tuple(
            PreferredSchedulingTerm(weight=random_int(rng, 1, 100), preference=_node_term(rng))
            for _ in range(random_int(rng, 0, 2))
        ),
    )


def _node_term(rng: RandomSource) -> NodeSelectorTerm:
    by_name = NodeSelectorRequirement(
        key="metadata.name",
        operator=pick(rng, ("In", "NotIn")),
        values=(pick(rng, _VALUES[HOSTNAME]),),
    )
    return NodeSelectorTerm(
        match_expressions=tuple(_node_requirement(rng) for _ in range(random_int(rng, 0, 2))),
        match_fields=(by_name,) if chance(rng, 6) else (),
    )


def _node_requirement(rng: RandomSource) -> NodeSelectorRequirement:
    key = pick(rng, tuple(_VALUES))
    operator = pick(rng, ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"))
    if operator in ("Gt", "Lt"):
        return NodeSelectorRequirement(key="cores", operator=operator, values=("5",))
    values = () if "Exist" in operator else (pick(rng, _VALUES[key]), pick(rng, _VALUES[key]))
    return NodeSelectorRequirement(key=key, operator=operator, values=values)


def _pod_affinity(rng: RandomSource) -> PodAffinity:
    return PodAffinity(
        required=tuple(_term(rng) for _ in range(random_int(rng, 0, 2))),
        preferred=tuple(
            WeightedPodAffinityTerm(weight=random_int(rng, 1, 100), pod_affinity_term=_term(rng))
            for _ in range(random_int(rng, 0, 2))
        ),
    )


def _term(rng: RandomSource) -> PodAffinityTerm:
    of_prod = LabelSelector(match_labels={"name": "prod"})
    return PodAffinityTerm(
        label_selector=_label_selector(rng),
        topology_key=pick(rng, (ZONE, HOSTNAME, "disk")),
        namespaces=sample(rng, NAMESPACES, 2) if chance(rng, 4) else (),
        namespace_selector=pick(rng, (of_prod, LabelSelector())) if chance(rng, 4) else None,
    )


def _label_selector(rng: RandomSource) -> LabelSelector | None:
    operator = pick(rng, ("In", "NotIn", "Exists", "DoesNotExist"))
    values = () if "Exist" in operator else (pick(rng, APPS),)
    requirement = LabelSelectorRequirement(key="app", operator=operator, values=values)
    return pick(
        rng,
        (
            LabelSelector(match_labels={"app": pick(rng, APPS)}),
            LabelSelector(match_expressions=(requirement,)),
            LabelSelector(),
            None,
        ),
    )


def _spread(rng: RandomSource) -> tuple[TopologySpreadConstraint, ...]:
    if not chance(rng, 3):
        return ()
    return tuple(_constraint(rng) for _ in range(random_int(rng, 1, 2)))


def _constraint(rng: RandomSource) -> TopologySpreadConstraint:
    hard = not chance(rng, 2)
    return TopologySpreadConstraint(
        max_skew=random_int(rng, 1, 2),
        topology_key=pick(rng, (ZONE, HOSTNAME, "disk")),
        when_unsatisfiable="DoNotSchedule" if hard else "ScheduleAnyway",
        label_selector=_label_selector(rng),
        min_domains=pick(rng, (None, 2, 5)) if hard else None,
        node_affinity_policy=pick(rng, (None, "Honor", "Ignore")),
        node_taints_policy=pick(rng, (None, "Honor", "Ignore")),
        match_label_keys=("tier",) if chance(rng, 5) else (),
    )
