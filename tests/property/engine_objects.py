"""Nodes and pods for the engine: every rule that it knows, in small vocabularies, by the dice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec.structs import replace

from stowplan.objects.meta import Object, ObjectMeta, OwnerReference
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod, PodAffinityTerm, TopologySpreadConstraint
from stowplan.objects.selectors import LabelSelector
from stowplan.objects.volume import EphemeralVolume, GCEPersistentDisk, Volume
from stowplan.objects.workload import Namespace, ReplicaSet, Service, ServiceSpec, WorkloadSpec
from stowplan.testing import generate, make
from stowplan.testing.dice import Dice, chance, number, pick, some
from stowplan.testing.make import HOSTNAME, ZONE

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


def node(dice: Dice, name: str) -> Node:
    """A node; one in a few lacks a label that others have, or is made to fill up soon."""
    labels = {"disk": pick(dice, ("ssd", "hdd"))} if chance(dice, 2) else {}
    if chance(dice, 2):
        labels["cores"] = pick(dice, ("4", "16", "many"))
    if not chance(dice, 5):
        labels[RACK] = pick(dice, ("r1", "r2", "r3", "r4"))
    made = make.node(
        name,
        cpu=pick(dice, ("8", "16", "16", "64", "1500m", "7")),
        memory=pick(dice, ("16Gi", "64Gi", "64Gi", "256Gi", "3Gi", "8000M")),
        pods=pick(dice, (110, 110, 110, 9, 3, 1)),
        resources=_extended(dice),
        zone="" if chance(dice, 8) else pick(dice, ZONES),
        labels=labels,
        taints=some(dice, TAINTS, 2) if chance(dice, 3) else (),
        cordoned=chance(dice, 12),
        images={name: IMAGES[name] for name in some(dice, tuple(IMAGES), 2)},
    )
    if chance(dice, 12):
        status = replace(made.status, allocatable=generate.node(dice, name).status.allocatable)
        made = replace(made, status=status)
    return _with_odd_host(dice, made)


def _extended(dice: Dice) -> dict[str, str]:
    offered = {"ephemeral-storage": pick(dice, ("20Gi", "2Gi"))} if not chance(dice, 3) else {}
    if chance(dice, 3):
        offered["nvidia.com/gpu"] = pick(dice, ("4", "1", "0"))
    if chance(dice, 5):
        offered["example.com/dongle"] = "2"
    return offered


def _with_odd_host(dice: Dice, made: Node) -> Node:
    """Once in a while a node without a host name, or with that of others."""
    if not chance(dice, 60):
        return made
    labels = {key: value for key, value in made.labels.items() if key != HOSTNAME}
    if chance(dice, 2):
        labels[HOSTNAME] = "twin"
    return replace(made, metadata=replace(made.metadata, labels=labels))


# Pods.


class Wishes:
    """What a template is made of; each wish adds to it."""

    def __init__(self, dice: Dice) -> None:
        self.namespace = "prod" if chance(dice, 6) else "default"
        self.labels = {"app": pick(dice, APPS)} if not chance(dice, 5) else {}
        if chance(dice, 3):
            self.labels["tier"] = pick(dice, ("front", "back"))
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

    def pod(self, dice: Dice) -> Pod:
        """The template: a pod without a name."""
        wanted = make.affinity(
            nodes=self.nodes,
            prefer_nodes=self.prefer_nodes,
            near=self.near,
            apart=self.apart,
            prefer_near=self.prefer_near,
            prefer_apart=self.prefer_apart,
        )
        made = make.pod(
            "",
            namespace=self.namespace,
            resources=self.requests,
            image=self.image,
            ports=self.ports,
            labels=self.labels,
            priority=pick(dice, (None, 0, 0, 10)),
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
            claim = Volume(name="v", ephemeral=EphemeralVolume())
            made = replace(made, spec=replace(made.spec, volumes=(claim,)))
        return made


def asks(dice: Dice, wishes: Wishes) -> None:
    """Resources: usually cpu and memory, sometimes others, sometimes none."""
    names = ("cpu", "memory") if not chance(dice, 3) else some(dice, tuple(ASKED), 5)
    wishes.requests = {name: pick(dice, ASKED[name]) for name in names}


def selects_nodes(dice: Dice, wishes: Wishes) -> None:
    """Nodes that it must go to."""
    if chance(dice, 3):
        wishes.selector = {"disk": pick(dice, ("ssd", "hdd"))}
    else:
        wishes.nodes = [pick(dice, NODE_TERMS) for _ in range(number(dice, 1, 2))]


def prefers_nodes(dice: Dice, wishes: Wishes) -> None:
    """Nodes that it would rather go to, by weights that leave few with the highest."""
    for _ in range(number(dice, 1, 3)):
        wishes.prefer_nodes[pick(dice, NODE_TERMS)] = pick(dice, (1, 7, 50, 100))


def tolerates(dice: Dice, wishes: Wishes) -> None:
    """Taints that it does not mind."""
    wishes.tolerations = list(some(dice, TOLERATIONS, 2))


def has_image(dice: Dice, wishes: Wishes) -> None:
    """An image that some nodes have."""
    wishes.image = pick(dice, (*IMAGES, "nowhere:1"))


def takes_port(dice: Dice, wishes: Wishes) -> None:
    """A host port."""
    wishes.ports = [pick(dice, (80, 443))]


def mounts(dice: Dice, wishes: Wishes) -> None:
    """A disk that one node at a time may have."""
    wishes.disk = pick(dice, ("disk-1", "disk-2"))


def owns_a_claim(dice: Dice, wishes: Wishes) -> None:
    """A volume that is made for each pod anew, and asked for by the pod's name."""
    wishes.owns_claim = True


def _constraint(dice: Dice, *, hard: bool) -> TopologySpreadConstraint:
    policy = (None, None, "Honor", "Ignore")
    return make.spread(
        pick(dice, SELECTORS),
        pick(dice, KEYS),
        max_skew=number(dice, 1, 3),
        hard=hard,
        min_domains=pick(dice, (None, None, 2, 4)) if hard else None,
        match_label_keys=("tier",) if chance(dice, 5) else (),
        node_affinity_policy=pick(dice, policy),
        node_taints_policy=pick(dice, policy),
    )


def spreads(dice: Dice, wishes: Wishes) -> None:
    """Hard spread, one constraint or several."""
    wishes.spread += [_constraint(dice, hard=True) for _ in range(pick(dice, (1, 1, 2, 3)))]


def spreads_softly(dice: Dice, wishes: Wishes) -> None:
    """Soft spread, one constraint or several."""
    wishes.spread += [_constraint(dice, hard=False) for _ in range(pick(dice, (1, 2, 2, 3)))]


def is_owned(dice: Dice, wishes: Wishes) -> None:
    """A controller, by whose selector it is spread where it says nothing itself."""
    wishes.owner = pick(dice, APPS)


def _term(dice: Dice) -> PodAffinityTerm:
    return make.term(
        pick(dice, SELECTORS),
        pick(dice, KEYS),
        namespaces=some(dice, NAMESPACES, 2) if chance(dice, 4) else (),
        namespace_selector=pick(dice, ("name=prod", "")) if chance(dice, 5) else None,
    )


def is_near(dice: Dice, wishes: Wishes) -> None:
    """Pods that it must be near, often itself among them."""
    wishes.near = [_term(dice) for _ in range(pick(dice, (1, 1, 2)))]
    if wishes.labels and chance(dice, 2):
        own = ",".join(f"{key}={value}" for key, value in wishes.labels.items())
        wishes.near = [make.term(own, pick(dice, (ZONE, HOSTNAME, RACK)))]


def is_apart(dice: Dice, wishes: Wishes) -> None:
    """Pods that it must not be near."""
    wishes.apart = [_term(dice) for _ in range(pick(dice, (1, 1, 2, 3)))]


def prefers_near(dice: Dice, wishes: Wishes) -> None:
    """Pods that it would rather be near."""
    wishes.prefer_near = [
        (pick(dice, (1, 30, 100)), _term(dice)) for _ in range(pick(dice, (1, 2)))
    ]


def prefers_apart(dice: Dice, wishes: Wishes) -> None:
    """Pods that it would rather not be near."""
    wishes.prefer_apart = [
        (pick(dice, (1, 30, 100)), _term(dice)) for _ in range(pick(dice, (1, 2)))
    ]


WHOLE_MAX = 3

Wish = Callable[[Dice, Wishes], None]

SLOW: tuple[Wish, ...] = (takes_port, mounts, owns_a_claim)
"""What no plan is made for."""

WISHES: tuple[Wish, ...] = (
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


def template(dice: Dice, wanted: Sequence[Wish] = WISHES) -> Pod:
    """A pod without a name that has some of these wishes, or all where they are few; once in a
    while one of any kind."""
    if chance(dice, 20):
        return generate.pod(dice, "odd")
    wishes = Wishes(dice)
    asks(dice, wishes)
    is_whole = len(wanted) <= WHOLE_MAX and chance(dice, 2)
    for wish in wanted if is_whole else some(dice, wanted, pick(dice, (0, 1, 1, 2, 3))):
        wish(dice, wishes)
    if chance(dice, 20):
        pick(dice, SLOW)(dice, wishes)
    return wishes.pod(dice)


def named(made: Pod, name: str, on: str = "") -> Pod:
    """A pod of a template, which shares its spec with the others while it is bound to no node."""
    meta = replace(made.metadata, name=name, uid=name)
    spec = replace(made.spec, node_name=on) if on else made.spec
    return replace(made, metadata=meta, spec=spec)


# The rest of the world.


def namespace(dice: Dice, name: str) -> Object:
    """A namespace with a label that selectors ask for, or without."""
    labels = {"name": name} if chance(dice, 2) else {}
    return Namespace(metadata=ObjectMeta(name=name, labels=labels))


def controller(dice: Dice, app: str) -> Object:
    """A ReplicaSet or a service that selects pods of an app."""
    meta = ObjectMeta(name=app, namespace="default")
    labels = {"app": pick(dice, APPS)}
    if chance(dice, 2):
        return Service(metadata=meta, spec=ServiceSpec(selector=labels))
    return ReplicaSet(metadata=meta, spec=WorkloadSpec(selector=LabelSelector(match_labels=labels)))
