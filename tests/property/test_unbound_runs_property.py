"""Runs of pods whose claims wait for their first consumer, placed by kernels: effects equal the
walk's.

Each wrong variant leaves out one thing that decides which volumes nodes have left, or which claims
are alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.benchmarks.benchmark_objects import HOST, ZONE, Tree, make_object, required_nodes
from stowplan.columns.engine import kernels as compiled
from stowplan.columns.engine import numpy_kernels
from stowplan.cycle.engine.device_rows import DeviceRows
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod
from stowplan.objects.storage import (
    CSIDriver,
    CSINode,
    CSIStorageCapacity,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PhaseStatus,
    StorageClass,
)
from stowplan.plugins.volumes.claims import unbound_claims
from stowplan.plugins.volumes.claims.unbound_claims import (
    KeptClaims,
    UnboundClaims,
    VolumesForClass,
)
from stowplan.plugins.volumes.volume_matching import FreeVolumes, VolumesOfKind
from stowplan.scheduler import SchedulerOptions
from stowplan.testing import builders
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int
from tests.property.engine_random_walk import Pair, scheduler
from tests.property.wrong import assert_caught
from tests.soak import examples

SEEDS = st.integers(0, 2**32 - 1)
N_STEPS = 4
MADE, TIGHT = "made.example.com", "tight.example.com"
BOUND = "pv.kubernetes.io/bind-completed"
SELECTED = "volume.kubernetes.io/selected-node"
CLASSES = ("local", "made", "zoned", "tight", "now")


def _storage_class(name: str, zone: str) -> StorageClass:
    fields: Tree = {"provisioner": "kubernetes.io/no-provisioner"}
    if name != "local":
        fields["provisioner"] = TIGHT if name == "tight" else MADE
    if name == "zoned":
        inside = {"key": ZONE, "values": [zone]}
        fields["allowedTopologies"] = [{"matchLabelExpressions": [inside]}]
    fields["volumeBindingMode"] = "Immediate" if name == "now" else "WaitForFirstConsumer"
    return make_object(StorageClass, name, **fields)


class Unbound:
    """Nodes with volumes of their own and of zones, and pods of few templates with claims."""

    def __init__(self, seed: int, kernels: Any) -> None:
        self.rng: RandomSource = np.random.default_rng(seed)
        seed_of_ties = seed if chance(self.rng, 2) else None
        self.pair = Pair(kernels, lambda: scheduler(seed_of_ties, SchedulerOptions()))
        self.pods: dict[str, Pod] = {}
        self.claims: dict[str, PersistentVolumeClaim] = {}
        self.volumes: dict[str, PersistentVolume] = {}
        self.now = 0
        self._version = 1
        self.names = [f"n{i}" for i in range(random_int(self.rng, 1, 6))]
        self._is_wide = chance(self.rng, 2)
        self._templates = [self._template() for _ in range(random_int(self.rng, 1, 3))]
        self._kinds = [self._kind() for _ in range(random_int(self.rng, 1, 3))]
        self.handle(self._cluster())

    def _cluster(self) -> list[Event]:
        rng = self.rng
        found: list[Object] = [_storage_class(name, pick(rng, ("a", "b"))) for name in CLASSES]
        found.append(make_object(CSIDriver, MADE, spec={}))
        found.append(make_object(CSIDriver, TIGHT, spec={"storageCapacity": True}))
        events: list[Event] = []
        for name in self.names:
            node = builders.node(
                name,
                cpu=pick(rng, ("4", "12", "48")),
                pods=30,
                zone=pick(rng, ("a", "b")),
                labels={HOST: name},
            )
            events.append(happened.NodeAdded(node))
            if chance(rng, 6):
                found.append(self._csi_node(name))
        found += [self._capacity(name) for name in self.names if not chance(rng, 3)]
        events += map(happened.ObjectAdded, found)
        for _ in range(random_int(rng, 0, 16)):
            events.append(self._volume())
        return events

    def _csi_node(self, name: str) -> CSINode:
        rng = self.rng
        drivers: list[Tree] = [
            {"name": d, "nodeID": name, "allocatable": {"count": pick(rng, (1, 2, 5, 30))}}
            for d in (MADE, TIGHT)
        ]
        return make_object(CSINode, name, spec={"drivers": drivers})

    def _capacity(self, name: str) -> CSIStorageCapacity:
        return make_object(
            CSIStorageCapacity,
            f"capacity-{name}",
            "default",
            nodeTopology={"matchLabels": {HOST: name}},
            storageClassName="tight",
            capacity=pick(self.rng, ("100Gi", "100Gi", "1Mi")),
        )

    def _volume(self) -> Event:
        """A free volume, mostly of one node; a few name a claim."""
        rng, name = self.rng, f"v{len(self.volumes)}"
        spec: Tree = {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": pick(rng, ("local", "local", "local", "made", "tight")),
            "capacity": {"storage": pick(rng, ("1Gi", "2Gi", "3Gi", "3Gi"))},
        }
        where = pick(rng, ("host", "host", "host", "zone", "any") if self._is_wide else ("host",))
        if where != "any":
            key, value = (HOST, pick(rng, tuple(self.names))) if where == "host" else (ZONE, "a")
            affinity = required_nodes("matchExpressions", key, value)
            required = affinity["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
            spec["nodeAffinity"] = {"required": required}
        if chance(rng, 10):
            # Also of one that comes next.
            named = f"c{random_int(rng, 0, len(self.claims) + 1)}"
            spec["claimRef"] = {"namespace": "default", "name": named}
        made = make_object(PersistentVolume, name, spec=spec, status={"phase": "Available"})
        self.volumes[name] = made
        return happened.ObjectAdded(made)

    # Pods.

    def _template(self) -> Tree:
        rng = self.rng
        return {"cpu": pick(rng, ("100m", "500m", "1")), "n_claims": pick(rng, (1, 1, 1, 2))}

    def _kind(self) -> Tree:
        """What claims are like."""
        rng = self.rng
        spec: Tree = {
            "accessModes": [pick(rng, ("ReadWriteOnce",) * 9 + ("ReadWriteOncePod",))],
            "storageClassName": pick(rng, ("local",) * 4 + CLASSES[:4] * 3 + CLASSES[4:]),
            "resources": {"requests": {"storage": pick(rng, ("1Gi", "1Gi", "2Gi"))}},
        }
        if chance(rng, 20):
            spec["selector"] = {"matchLabels": {"a": "b"}}
        return spec

    def _claim(self) -> tuple[str, list[Event]]:
        rng, name = self.rng, f"c{len(self.claims)}"
        if self.claims and chance(rng, 10):
            return pick(rng, tuple(self.claims)), []
        spec = dict(pick(rng, tuple(self._kinds)))
        claim = make_object(
            PersistentVolumeClaim, name, "default", spec=spec, status={"phase": "Pending"}
        )
        self.claims[name] = claim
        return name, [] if chance(rng, 40) else [happened.ObjectAdded(claim)]

    def _pod(self) -> list[Event]:
        template, name = pick(self.rng, tuple(self._templates)), f"p{len(self.pods)}"
        events: list[Event] = []
        volumes: list[Tree] = []
        for place in range(template["n_claims"]):
            claim, more = self._claim()
            events += more
            source = {"claimName": claim}
            volumes.append({"name": f"d{place}", "persistentVolumeClaim": source})
        requests = {"cpu": template["cpu"]}
        tree = {
            "metadata": {"name": name, "namespace": "default", "uid": name},
            "spec": {
                "containers": [{"name": "c", "resources": {"requests": requests}}],
                "volumes": volumes,
            },
        }
        pod = self.pods[name] = convert(tree, Pod)
        return [*events, happened.PodAdded(pod)]

    def step(self) -> None:
        """Pods and volumes come, some pods go, and other things change."""
        rng = self.rng
        self.now += 20 * SECOND
        events: list[Event] = []
        for _ in range(random_int(rng, 1, 12)):
            events += self._pod()
        if chance(rng, 3):
            events.append(self._volume())
        if chance(rng, 6):
            events.append(happened.ObjectUpdated(self._csi_node(pick(rng, tuple(self.names)))))
        if chance(rng, 6):
            events.append(happened.ObjectUpdated(self._capacity(pick(rng, tuple(self.names)))))
        if chance(rng, 8):
            changed = _storage_class("zoned", pick(rng, ("a", "b")))
            events.append(happened.ObjectUpdated(changed))
        gone = pick(rng, tuple(self.pods)) if self.pods and chance(rng, 3) else ""
        if gone:
            events.append(happened.PodDeleted(self.pods[gone]))
        self.handle(events)

    def handle(self, events: list[Event]) -> None:
        """Send events to both, and answer what they do."""
        for _ in range(20):
            events = self._answers(self.pair.handle(events, self.now))
            if not events:
                return

    def _answers(self, effects: list[Effect]) -> list[Event]:
        found: list[Event] = []
        for effect in effects:
            if isinstance(effect, to_do.Bind):
                pod = self.pods[effect.uid]
                spec = replace(pod.spec, node_name=effect.node)
                seen = self.pods[effect.uid] = replace(pod, spec=spec)
                found += [happened.BindDone(effect.effect, effect.uid), happened.PodUpdated(seen)]
            elif isinstance(effect, to_do.Write):
                found += self._written(effect)
        return found

    def _written(self, effect: to_do.Write) -> list[Event]:
        """The outcome of a write, the object as the watch shows it, and what controllers do."""
        if chance(self.rng, 25):
            return [happened.WriteFailed(effect.effect, effect.uid, 403, "no")]
        seen = self._versioned(effect.value)
        found: list[Event] = [
            happened.WriteDone(effect.effect, effect.uid, seen.metadata.resource_version),
            happened.ObjectUpdated(seen),
        ]
        if isinstance(seen, PersistentVolume):
            self.volumes[seen.name] = seen
            reference = seen.spec.claim_ref
            assert reference is not None
            return [*found, self._bound(self.claims[reference.name], seen.name)]
        assert isinstance(seen, PersistentVolumeClaim)
        self.claims[seen.name] = seen
        if seen.spec.volume_name:
            return found
        volume = self._provisioned(seen)
        return [*found, happened.ObjectAdded(volume), self._bound(seen, volume.name)]

    def _versioned(self, value: Any) -> Any:
        self._version += 1
        return replace(value, metadata=replace(value.metadata, resource_version=str(self._version)))

    def _bound(self, claim: PersistentVolumeClaim, volume: str) -> Event:
        annotations = {**claim.metadata.annotations, BOUND: "yes"}
        after = self._versioned(
            replace(
                claim,
                metadata=replace(claim.metadata, annotations=annotations),
                spec=replace(claim.spec, volume_name=volume),
                status=PhaseStatus("Bound"),
            )
        )
        self.claims[claim.name] = after
        return happened.ObjectUpdated(after)

    def _provisioned(self, claim: PersistentVolumeClaim) -> PersistentVolume:
        name = f"pvc-{claim.name}"
        made = make_object(
            PersistentVolume,
            name,
            spec={
                "accessModes": list(claim.spec.access_modes),
                "storageClassName": claim.spec.storage_class_name,
                "capacity": {"storage": "1Gi"},
                "csi": {"driver": MADE, "volumeHandle": name},
            },
            status={"phase": "Bound"},
        )
        reference = ObjectReference(
            kind="PersistentVolumeClaim", namespace="default", name=claim.name
        )
        made = replace(made, spec=replace(made.spec, claim_ref=reference))
        self.volumes[name] = made
        return made


def same_effects(seed: int, kernels: Any = compiled, n_steps: int = N_STEPS) -> int:
    """Run both; returns the number of pods that kernels placed."""
    found = Unbound(seed, kernels)
    for _ in range(n_steps):
        found.step()
    found.pair.compare()
    return found.pair.n_fast


@pytest.mark.parametrize("kernels", [compiled, numpy_kernels], ids=["compiled", "numpy"])
def test_runs_of_pods_with_unbound_claims_are_those_of_the_walk(kernels: Any) -> None:
    @settings(max_examples=examples(15), deadline=None)
    @given(SEEDS)
    def check(seed: int) -> None:
        same_effects(seed, kernels)

    check()


def test_kernels_place_pods_with_unbound_claims() -> None:
    assert sum(same_effects(seed) for seed in range(10)) > 15


def shared_claims_are_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two pods with the same claim are placed at once."""
    monkeypatch.setattr(VolumesForClass, "are_own", lambda claims, pod, taken: True)


def sizes_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims of other sizes are alike."""
    right = unbound_claims._kind_of_unbound

    def kind(*given: Any) -> Any:
        found = right(*given)
        return found and (found[0][0], found[0][2:])

    monkeypatch.setattr(unbound_claims, "_kind_of_unbound", kind)


def volumes_stay_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pod takes is left to the next run."""
    monkeypatch.setattr(FreeVolumes, "_free_changed", lambda free, volume: None)


def all_classes_take_volumes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod for which a volume is made takes one of other pods' as well."""
    monkeypatch.setattr(DeviceRows, "_recount_unchanged", lambda rows, states, placed: None)


def volumes_have_one_node(monkeypatch: pytest.MonkeyPatch) -> None:
    """Volumes of a zone are counted for each of its nodes."""
    monkeypatch.setattr(VolumesOfKind, "has_shared", lambda volumes, nodes: False)


def supply_does_not_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Classes, drivers and capacities are as at the start."""
    right = FreeVolumes.states
    monkeypatch.setattr(FreeVolumes, "states", lambda free, nodes, version: right(free, nodes, 0))


def drivers_are_not_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Volumes that are made do not count for limits."""
    right = unbound_claims.unbound_claims

    def read(*given: Any) -> UnboundClaims | None:
        found = right(*given)
        return None if found is None else replace(found, drivers=())

    monkeypatch.setattr("stowplan.plugins.volumes.node_volume_limits.unbound_claims", read)


def promised_claims_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that is promised to a node can be served elsewhere."""
    monkeypatch.setattr(unbound_claims, "SELECTED_NODE_ANNOTATION", "never")


def named_claims_are_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that a volume names may take another."""
    monkeypatch.setattr(unbound_claims, "_is_named", lambda claim, object_store: False)


def answers_are_kept_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a pod's claims are like is read once, whatever becomes of them."""
    right = KeptClaims.of

    def of(object_store: Any) -> KeptClaims:
        kept = object_store.indexes.get(KeptClaims)
        return right(object_store) if kept is None else kept

    monkeypatch.setattr(KeptClaims, "of", of)


@pytest.mark.parametrize(
    ("break_it", "seed"),
    [
        (answers_are_kept_for_ever, 16),
        (shared_claims_are_own, 16),
        (sizes_are_not_compared, 17),
        (volumes_stay_free, 0),
        (all_classes_take_volumes, 17),
        (volumes_have_one_node, 0),
        (supply_does_not_change, 23),
        (drivers_are_not_counted, 1),
        (promised_claims_are_free, 16),
        (named_claims_are_free, 16),
    ],
)
def test_control_what_is_left_out_is_noticed(
    break_it: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert_caught(lambda seed: same_effects(seed, n_steps=2 * N_STEPS), SEEDS, known=(seed,))
