"""Nodes and pods for the engine: every rule that it knows, in small vocabularies, by the dice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from stowplan.objects.meta import Object, ObjectMeta, OwnerReference
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod, PodAffinityTerm, TopologySpreadConstraint
from stowplan.objects.selectors import LabelSelector
from stowplan.objects.volume import EphemeralVolumeSource, GCEPersistentDisk, Volume
from stowplan.objects.workload import Namespace, ReplicaSet, Service, ServiceSpec, WorkloadSpec
from stowplan.testing import builders
from stowplan.testing.builders import HOSTNAME, ZONE
from stowplan.testing.generators import scenes
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int, sample

RACK = "rack"
ZONES = ("a", "b", "c")
APPS = ("web", "db", "cache")
NAMESPACES = ("default", "prod")
KEYS = (ZONE, ZONE, HOSTNAME, HOSTNAME, RACK)
SELECTORS = (
    "app=web",
    "app=web",
    "app=db",
    "app in (web,db)",
    "app",
    "!app",
    "app!=web",
    "tier=front",
    "app=cache,tier!=back",
    "",
    None,
)
NODE_TERMS = ("disk=ssd", "disk!=ssd", "disk", "!disk", "cores>8", f"{ZONE} in (a,b)", f"{ZONE}=c")
TAINTS = ("gpu=yes:NoSchedule", "team=a:PreferNoSchedule", "old:PreferNoSchedule", "out:NoExecute")
TOLERATIONS = ("gpu", "team=a", "old:PreferNoSchedule", "*:PreferNoSchedule", "out", "*")
IMAGES = {"nginx:1": "180Mi", "tool:2": "900Mi", "cuda:12": "3000Mi"}
ASKED = {
    "cpu": ("100m", "250m", "1", "1500m", "0", "333m"),
    "memory": ("200Mi", "1Gi", "3Gi", "0", "700M"),
    "ephemeral-storage": ("1Gi", "0"),
    "nvidia.com/gpu": ("1", "2", "0"),
    "example.com/dongle": ("1",),
}


# Nodes.


def node(rng: RandomSource, name: str) -> Node:
    """A node; one in a few lacks a label that others have, or is made to fill up soon."""
    labels = {"disk": pick(rng, ("ssd", "hdd"))} if chance(rng, 2) else {}
    if chance(rng, 2):
        labels["cores"] = pick(rng, ("4", "16", "many"))
    if not chance(rng, 5):
        labels[RACK] = pick(rng, ("r1", "r2", "r3", "r4"))
    made = builders.node(
        name,
        cpu=pick(rng, ("8", "16", "16", "64", "1500m", "7")),
        memory=pick(rng, ("16Gi", "64Gi", "64Gi", "256Gi", "3Gi", "8000M")),
        pods=pick(rng, (110, 110, 110, 9, 3, 1)),
        resources=_extended(rng),
        zone="" if chance(rng, 8) else pick(rng, ZONES),
        labels=labels,
        taints=sample(rng, TAINTS, 2) if chance(rng, 3) else (),
        cordoned=chance(rng, 12),
        images={name: IMAGES[name] for name in sample(rng, tuple(IMAGES), 2)},
    )
    if chance(rng, 12):
        status = replace(made.status, allocatable=scenes.node(rng, name).status.allocatable)
        made = replace(made, status=status)
    return _with_odd_host(rng, made)


def _extended(rng: RandomSource) -> dict[str, str]:
    offered = {"ephemeral-storage": pick(rng, ("20Gi", "2Gi"))} if not chance(rng, 3) else {}
    if chance(rng, 3):
        offered["nvidia.com/gpu"] = pick(rng, ("4", "1", "0"))
    if chance(rng, 5):
        offered["example.com/dongle"] = "2"
    return offered


def _with_odd_host(rng: RandomSource, made: Node) -> Node:
    """Once in a while a node without a host name, or with that of others."""
    if not chance(rng, 60):
        return made
    labels = {key: value for key, value in made.labels.items() if key != HOSTNAME}
    if chance(rng, 2):
        labels[HOSTNAME] = "twin"
    return replace(made, metadata=replace(made.metadata, labels=labels))


# Pods.


class Wishes:
    """What a template is made of; each wish adds to it."""

    def __init__(self, rng: RandomSource) -> None:
        self.namespace = "prod" if chance(rng, 6) else "default"
        self.labels = {"app": pick(rng, APPS)} if not chance(rng, 5) else {}
        if chance(rng, 3):
            self.labels["tier"] = pick(rng, ("front", "back"))
        self.requests: dict[str, str] = {}
        self.nodes: list[str] = []
        self.prefer_nodes: dict[str, int] = {}
        self.selector: dict[str, str] | None = None
        self.near: list[PodAffinityTerm] = []
        self.apart: list[PodAffinityTerm] = []
        self.prefer_near: list[tuple[int, PodAffinityTerm]] = []
        self.prefer_apart: list[tuple[int, PodAffinityTerm]] = []
        self.spread: list[TopologySpreadConstraint] = []
        self.tolerations: list[str] = []
        self.image = ""
        self.ports: list[int] = []
        self.owner = ""
        self.disk = ""
        self.owns_claim = False

    def pod(self, rng: RandomSource) -> Pod:
        """The template: a pod without a name."""
        wanted = builders.affinity(
            nodes=self.nodes,
            prefer_nodes=self.prefer_nodes,
            near=self.near,
            apart=self.apart,
            prefer_near=self.prefer_near,
            prefer_apart=self.prefer_apart,
        )
        made = builders.pod(
            "",
            namespace=self.namespace,
            resources=self.requests,
            image=self.image,
            ports=self.ports,
            labels=self.labels,
            priority=pick(rng, (None, 0, 0, 10)),
            node_selector=self.selector,
            affinity=wanted,
            tolerations=self.tolerations,
            spread=self.spread,
        )
        if self.owner:
            kind = OwnerReference("apps/v1", "ReplicaSet", self.owner, self.owner, True)
            made = replace(made, metadata=replace(made.metadata, owner_references=(kind,)))
        if self.disk:
            disk = Volume(name="d", gce_persistent_disk=GCEPersistentDisk(pd_name=self.disk))
            made = replace(made, spec=replace(made.spec, volumes=(disk,)))
        if self.owns_claim:
            claim = Volume(name="v", ephemeral=EphemeralVolumeSource())
            made = replace(made, spec=replace(made.spec, volumes=(claim,)))
        return made


def asks(rng: RandomSource, wishes: Wishes) -> None:
    """Resources: usually cpu and memory, sometimes others, sometimes none."""
    names = ("cpu", "memory") if not chance(rng, 3) else sample(rng, tuple(ASKED), 5)
    wishes.requests = {name: pick(rng, ASKED[name]) for name in names}


def selects_nodes(rng: RandomSource, wishes: Wishes) -> None:
    """Nodes that it must go to."""
    if chance(rng, 3):
        wishes.selector = {"disk": pick(rng, ("ssd", "hdd"))}
    else:
        wishes.nodes = [pick(rng, NODE_TERMS) for _ in range(random_int(rng, 1, 2))]


def prefers_nodes(rng: RandomSource, wishes: Wishes) -> None:
    """Nodes that it would rather go to, by weights that leave few with the highest."""
    for _ in range(random_int(rng, 1, 3)):
        wishes.prefer_nodes[pick(rng, NODE_TERMS)] = pick(rng, (1, 7, 50, 100))


def tolerates(rng: RandomSource, wishes: Wishes) -> None:
    """Taints that it does not mind."""
    wishes.tolerations = list(sample(rng, TOLERATIONS, 2))


def has_image(rng: RandomSource, wishes: Wishes) -> None:
    """An image that some nodes have."""
    wishes.image = pick(rng, (*IMAGES, "nowhere:1"))


def takes_port(rng: RandomSource, wishes: Wishes) -> None:
    """A host port."""
    wishes.ports = [pick(rng, (80, 443))]


def mounts(rng: RandomSource, wishes: Wishes) -> None:
    """A disk that one node at a time may have."""
    wishes.disk = pick(rng, ("disk-1", "disk-2"))


def owns_a_claim(rng: RandomSource, wishes: Wishes) -> None:
    """A volume that is made for each pod anew, and asked for by the pod's name."""
    wishes.owns_claim = True


def _constraint(rng: RandomSource, *, hard: bool) -> TopologySpreadConstraint:
    policy = (None, None, "Honor", "Ignore")
    return builders.spread(
        pick(rng, SELECTORS),
        pick(rng, KEYS),
        max_skew=random_int(rng, 1, 3),
        hard=hard,
        min_domains=pick(rng, (None, None, 2, 4)) if hard else None,
        match_label_keys=("tier",) if chance(rng, 5) else (),
        node_affinity_policy=pick(rng, policy),
        node_taints_policy=pick(rng, policy),
    )


def spreads(rng: RandomSource, wishes: Wishes) -> None:
    """Hard spread, one constraint or several."""
    wishes.spread += [_constraint(rng, hard=True) for _ in range(pick(rng, (1, 1, 2, 3)))]


def spreads_softly(rng: RandomSource, wishes: Wishes) -> None:
    """Soft spread, one constraint or several."""
    wishes.spread += [_constraint(rng, hard=False) for _ in range(pick(rng, (1, 2, 2, 3)))]


def is_owned(rng: RandomSource, wishes: Wishes) -> None:
    """A controller, by whose selector it is spread where it says nothing itself."""
    wishes.owner = pick(rng, APPS)


def _term(rng: RandomSource) -> PodAffinityTerm:
    return builders.term(
        pick(rng, SELECTORS),
        pick(rng, KEYS),
        namespaces=sample(rng, NAMESPACES, 2) if chance(rng, 4) else (),
        namespace_selector=pick(rng, ("name=prod", "")) if chance(rng, 5) else None,
    )


def is_near(rng: RandomSource, wishes: Wishes) -> None:
    """Pods that it must be near, often itself among them."""
    wishes.near = [_term(rng) for _ in range(pick(rng, (1, 1, 2)))]
    if wishes.labels and chance(rng, 2):
        own = ",".join(f"{key}={value}" for key, value in wishes.labels.items())
        wishes.near = [builders.term(own, pick(rng, (ZONE, HOSTNAME, RACK)))]


def is_apart(rng: RandomSource, wishes: Wishes) -> None:
    """Pods that it must not be near."""
    wishes.apart = [_term(rng) for _ in range(pick(rng, (1, 1, 2, 3)))]


def prefers_near(rng: RandomSource, wishes: Wishes) -> None:
    """Pods that it would rather be near."""
    wishes.prefer_near = [(pick(rng, (1, 30, 100)), _term(rng)) for _ in range(pick(rng, (1, 2)))]


def prefers_apart(rng: RandomSource, wishes: Wishes) -> None:
    """Pods that it would rather not be near."""
    wishes.prefer_apart = [(pick(rng, (1, 30, 100)), _term(rng)) for _ in range(pick(rng, (1, 2)))]


WHOLE_MAX = 3

SpecChange = Callable[[RandomSource, Wishes], None]

SLOW: tuple[SpecChange, ...] = (takes_port, mounts, owns_a_claim)
"""What no plan is made for."""

WISHES: tuple[SpecChange, ...] = (
    selects_nodes,
    prefers_nodes,
    tolerates,
    has_image,
    spreads,
    spreads_softly,
    is_owned,
    is_near,
    is_apart,
    prefers_near,
    prefers_apart,
)


def template(rng: RandomSource, wanted: Sequence[SpecChange] = WISHES) -> Pod:
    """A pod without a name that has some of these wishes, or all where they are few; once in a
    while one of any kind."""
    if chance(rng, 20):
        return scenes.pod(rng, "odd")
    wishes = Wishes(rng)
    asks(rng, wishes)
    is_whole = len(wanted) <= WHOLE_MAX and chance(rng, 2)
    for change in wanted if is_whole else sample(rng, wanted, pick(rng, (0, 1, 1, 2, 3))):
        change(rng, wishes)
    if chance(rng, 20):
        pick(rng, SLOW)(rng, wishes)
    return wishes.pod(rng)


def named(made: Pod, name: str, on: str = "") -> Pod:
    """A pod of a template, which shares its spec with the others while it is bound to no node."""
    meta = replace(made.metadata, name=name, uid=name)
    spec = replace(made.spec, node_name=on) if on else made.spec
    return replace(made, metadata=meta, spec=spec)


# The rest of the world.


def namespace(rng: RandomSource, name: str) -> Object:
    """A namespace with a label that selectors ask for, or without."""
    labels = {"name": name} if chance(rng, 2) else {}
    return Namespace(metadata=ObjectMeta(name=name, labels=labels))


def controller(rng: RandomSource, app: str) -> Object:
    """A ReplicaSet or a service that selects pods of an app."""
    meta = ObjectMeta(name=app, namespace="default")
    labels = {"app": pick(rng, APPS)}
    if chance(rng, 2):
        return Service(metadata=meta, spec=ServiceSpec(selector=labels))
    return ReplicaSet(metadata=meta, spec=WorkloadSpec(selector=LabelSelector(match_labels=labels)))
