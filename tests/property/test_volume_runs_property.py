"""Runs of pods with bound claims placed by kernels: effects equal the walk's.

Each wrong variant leaves out one thing that the volume plugins read of a claim.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.benchmarks.benchmark_objects import ZONE, Tree, make_object
from stowplan.columns.engine import kernels as compiled
from stowplan.columns.engine import numpy_kernels
from stowplan.cycle.engine import engine
from stowplan.cycle.engine.classes import EnginePodClass
from stowplan.cycle.engine.plans import Planner
from stowplan.framework import object_store
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.pod import Pod
from stowplan.objects.pod_templates import PodTemplates
from stowplan.objects.storage import CSINode, PersistentVolume, PersistentVolumeClaim
from stowplan.plugins.volumes.claims import claim_kinds
from stowplan.plugins.volumes.claims.claim_kinds import ClaimKinds
from stowplan.scheduler import SchedulerOptions
from stowplan.testing import builders
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int
from tests.property.engine_random_walk import Pair, scheduler
from tests.property.wrong import assert_caught
from tests.soak import examples

SEEDS = st.integers(0, 2**32 - 1)
N_STEPS = 4
EBS = "ebs.csi.aws.com"
DRIVERS = (EBS, "files.example.com")
BOUND = {"pv.kubernetes.io/bind-completed": "true"}
IN_ZONE = {"key": ZONE, "operator": "In"}


class Volumes:
    """Nodes with limits, and pods of few templates with claims of their own or shared ones."""

    def __init__(self, seed: int, kernels: Any) -> None:
        self.rng: RandomSource = np.random.default_rng(seed)
        seed_of_ties = seed if chance(self.rng, 2) else None
        self.pair = Pair(kernels, lambda: scheduler(seed_of_ties, SchedulerOptions()))
        self.pods: dict[str, Pod] = {}
        self.claims: list[str] = []
        self.names = [f"n{i}" for i in range(random_int(self.rng, 1, 6))]
        self._templates = [self._template() for _ in range(random_int(self.rng, 1, 3))]
        self._kinds = [self._kind() for _ in range(random_int(self.rng, 1, 3))]
        events: list[Event] = []
        self.templates = PodTemplates()
        for name in self.names:
            zone = pick(self.rng, ("a", "b", ""))
            events.append(happened.NodeAdded(builders.node(name, cpu="4", pods=12, zone=zone)))
            if not chance(self.rng, 4):
                events.append(happened.ObjectAdded(self._csi_node(name)))
        self.handle(events)

    def _template(self) -> Tree:
        return {"cpu": pick(self.rng, ("100m", "500m", "1")), "n_claims": pick(self.rng, (1, 1, 2))}

    def _kind(self) -> Tree:
        """What volumes are like."""
        rng = self.rng
        sources: tuple[Tree, ...] = (
            {"csi": {"driver": pick(rng, DRIVERS)}},
            {"awsElasticBlockStore": {}},
            {"nfs": {"server": "s", "path": "/"}},
        )
        spec: Tree = dict(pick(rng, sources))
        if chance(rng, 3):
            term = {"matchExpressions": [{**IN_ZONE, "values": [pick(rng, ("a", "b"))]}]}
            spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": [term]}}
        return {"spec": spec, "labels": {ZONE: pick(rng, ("a", "b"))} if chance(rng, 4) else {}}

    def _csi_node(self, name: str) -> CSINode:
        rng = self.rng
        drivers = []
        for driver in DRIVERS:
            limit = {"count": pick(rng, (1, 2, 3, 7, 39))}
            drivers.append(
                {"name": driver, "nodeID": name}
                | ({} if chance(rng, 5) else {"allocatable": limit})
            )
        migrated = "storage.alpha.kubernetes.io/migrated-plugins"
        annotations = {migrated: "kubernetes.io/aws-ebs"} if chance(rng, 2) else {}
        return make_object(CSINode, name, annotations=annotations, spec={"drivers": drivers})

    def _claim(self, kind: Tree) -> tuple[str, list[Event]]:
        """A claim and its volume; most are bound."""
        rng, name = self.rng, f"c{len(self.claims)}"
        if self.claims and chance(rng, 8):
            return pick(rng, tuple(self.claims)), []
        self.claims.append(name)
        spec = msgspec.json.decode(msgspec.json.encode(kind["spec"]))
        if "csi" in spec:
            spec["csi"]["volumeHandle"] = f"h{pick(rng, (name, name, name, 'same'))}"
        elif "awsElasticBlockStore" in spec:
            spec["awsElasticBlockStore"]["volumeID"] = f"h{name}"
        modes = {"accessModes": [pick(rng, ("ReadOnlyMany",) * 7 + ("ReadWriteOncePod",))]}
        size = {"storage": "1Gi"}
        is_bound = not chance(rng, 12)
        volume = make_object(
            PersistentVolume,
            f"v-{name}",
            labels=kind["labels"],
            spec={
                **modes,
                **spec,
                "capacity": size,
                "claimRef": {"namespace": "default", "name": name},
            },
            status={"phase": "Bound"},
        )
        claim = make_object(
            PersistentVolumeClaim,
            name,
            "default",
            annotations=BOUND if is_bound else {},
            spec={**modes, "resources": {"requests": size}, "volumeName": f"v-{name}"},
            status={"phase": "Bound"},
        )
        found: list[Event] = [happened.ObjectAdded(claim)]
        return name, found if chance(rng, 20) else [happened.ObjectAdded(volume), *found]

    def _pod(self) -> list[Event]:
        template, name = pick(self.rng, tuple(self._templates)), f"p{len(self.pods)}"
        events: list[Event] = []
        volumes: list[Tree] = []
        for place in range(template["n_claims"]):
            claim, more = self._claim(pick(self.rng, tuple(self._kinds)))
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
        pod = convert(tree, Pod)
        if len(self.pods) % 3:
            # As decoders do; what pods of a template have in common is then kept once.
            pod = self.templates.intern(pod)
        self.pods[name] = pod
        return [*events, happened.PodAdded(pod)]

    def step(self) -> None:
        """Pods come, and some that are bound go."""
        events: list[Event] = []
        for _ in range(random_int(self.rng, 1, 12)):
            events += self._pod()
        if chance(self.rng, 3):
            events.append(happened.ObjectUpdated(self._csi_node(pick(self.rng, tuple(self.names)))))
        self.handle(events)

    def handle(self, events: list[Event]) -> None:
        """Send events to both, and confirm what they bind."""
        for _ in range(20):
            events = self._bound(self.pair.handle(events, 0))
            if not events:
                return

    def _bound(self, effects: list[Effect]) -> list[Event]:
        found: list[Event] = []
        for effect in effects:
            if isinstance(effect, to_do.Bind):
                pod = self.pods[effect.uid]
                spec = msgspec.structs.replace(pod.spec, node_name=effect.node)
                seen = self.pods[effect.uid] = msgspec.structs.replace(pod, spec=spec)
                found += [happened.BindDone(effect.effect, effect.uid), happened.PodUpdated(seen)]
        return found


def same_effects(seed: int, kernels: Any = compiled, n_steps: int = N_STEPS) -> int:
    """Run both; returns the number of pods that kernels placed."""
    found = Volumes(seed, kernels)
    for _ in range(n_steps):
        found.step()
    found.pair.compare()
    return found.pair.n_fast


@pytest.mark.parametrize("kernels", [compiled, numpy_kernels], ids=["compiled", "numpy"])
def test_runs_of_pods_with_bound_claims_are_those_of_the_walk(kernels: Any) -> None:
    @settings(max_examples=examples(15), deadline=None)
    @given(SEEDS)
    def check(seed: int) -> None:
        same_effects(seed, kernels)

    check()


@pytest.mark.parametrize("kernels", [compiled, numpy_kernels], ids=["compiled", "numpy"])
def test_a_claim_of_an_earlier_pod_counts_as_it_is_now(kernels: Any) -> None:
    same_effects(11614, kernels)


@pytest.mark.parametrize("kernels", [compiled, numpy_kernels], ids=["compiled", "numpy"])
def test_annotations_of_csi_nodes_count(kernels: Any) -> None:
    same_effects(3314127, kernels)


def test_kernels_place_pods_with_bound_claims() -> None:
    assert sum(same_effects(seed) for seed in range(10)) > 20


class ChangingVolumes(Volumes):
    """Claims and volumes also change, go and come again; pods that come later name them."""

    def __init__(self, seed: int, kernels: Any) -> None:
        self._other_rng = random.Random(seed)
        self._stored: dict[str, list[PersistentVolume | PersistentVolumeClaim]] = {}
        self._gone: list[PersistentVolume | PersistentVolumeClaim] = []
        super().__init__(seed, kernels)

    def _claim(self, kind: Tree) -> tuple[str, list[Event]]:
        if self._stored and self._other_rng.random() < 0.5:
            return self._other_rng.choice(sorted(self._stored)), []
        name, events = super()._claim(kind)
        for event in events:
            assert isinstance(event, happened.ObjectAdded)
            self._stored.setdefault(name, []).append(event.value)
        return name, events

    def step(self) -> None:
        """As before, after some changes."""
        rng, events = self._other_rng, list[Event]()
        for _ in range(rng.randrange(3)):
            if self._gone and rng.random() < 0.5:
                events.append(happened.ObjectAdded(self._gone.pop()))
            elif self._stored:
                value = rng.choice(self._stored[rng.choice(sorted(self._stored))])
                if value in self._gone:
                    continue
                if rng.random() < 0.3:
                    self._gone.append(value)
                    events.append(happened.ObjectDeleted(value))
                else:
                    events.append(happened.ObjectUpdated(self._changed(value)))
        self.handle(events)
        super().step()

    def _changed(
        self, value: PersistentVolume | PersistentVolumeClaim
    ) -> PersistentVolume | PersistentVolumeClaim:
        """Another version, which also comes again once it is gone."""
        rng, meta = self._other_rng, value.metadata
        if isinstance(value, PersistentVolume):
            labels = rng.choice(({}, {ZONE: "a"}, {ZONE: "b"}))
            after = replace(value, metadata=replace(meta, labels=labels))
        else:
            annotations = rng.choice((BOUND, BOUND, {}))
            after = replace(value, metadata=replace(meta, annotations=annotations))
        for found in self._stored.values():
            found[:] = [after if one is value else one for one in found]
        return after


def same_effects_of_changes(seed: int, kernels: Any = compiled, n_steps: int = N_STEPS) -> int:
    """As `same_effects`, where claims and volumes change."""
    found = ChangingVolumes(seed, kernels)
    for _ in range(n_steps):
        found.step()
    found.pair.compare()
    return found.pair.n_fast


def test_claims_and_volumes_that_change_are_those_of_the_walk() -> None:
    for seed in range(examples(25)):
        same_effects_of_changes(seed)


def test_kernels_place_pods_with_claims_that_change() -> None:
    assert sum(same_effects_of_changes(seed) for seed in range(4)) > 10


def volumes_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kind of a volume stays as it was first."""
    right = ClaimKinds.volume_changed

    def changed(kinds: ClaimKinds, name: str, volume: PersistentVolume | None) -> None:
        known = kinds._volumes.get(name)
        if known is None or not known.exists:
            right(kinds, name, volume)

    monkeypatch.setattr(ClaimKinds, "volume_changed", changed)


def claims_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim that was bound stays bound."""
    right = ClaimKinds.claim_changed

    def changed(kinds: ClaimKinds, key: str, claim: PersistentVolumeClaim | None) -> None:
        if key not in kinds._of_claim:
            right(kinds, key, claim)

    monkeypatch.setattr(ClaimKinds, "claim_changed", changed)


def volumes_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A volume that comes after its claim is not noticed by it."""
    right = ClaimKinds.volume_changed

    def changed(kinds: ClaimKinds, name: str, volume: PersistentVolume | None) -> None:
        if volume is not None:
            kinds._volumes.pop(name, None)
        right(kinds, name, volume)

    monkeypatch.setattr(ClaimKinds, "volume_changed", changed)


@pytest.mark.parametrize(
    "break_it", [volumes_are_read_once, claims_are_read_once, volumes_come_first]
)
def test_control_changes_that_are_missed_are_noticed(
    break_it: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert_caught(lambda seed: same_effects_of_changes(seed, n_steps=2 * N_STEPS), SEEDS)


def limits_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs are as long as without limits."""
    monkeypatch.setattr(engine, "_n_within_limits", lambda classes, snapshot: len(classes))


def _kind_without(monkeypatch: pytest.MonkeyPatch, **fields: Any) -> None:
    right = claim_kinds._read_kind

    def read(*given: Any) -> Any:
        kind = right(*given)
        return None if kind is None else msgspec.structs.replace(kind, **fields)

    monkeypatch.setattr(claim_kinds, "_read_kind", read)


def reach_is_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Volumes with other node affinity are of one kind."""
    _kind_without(monkeypatch, reach=None, migrated_reach=None)


def zones_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Volumes of other zones are of one kind."""
    _kind_without(monkeypatch, zones=())


def kinds_are_found_without_labels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Volumes that differ in the labels of their zones are taken for the same."""
    monkeypatch.setattr(claim_kinds, "TOPOLOGY_LABELS", ())


def drivers_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """No driver attaches a volume."""
    _kind_without(monkeypatch, driver="")


def once_is_often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims for one pod only may be used by several."""
    monkeypatch.setattr(claim_kinds, "READ_WRITE_ONCE_POD", "never")


def unbound_is_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """A claim counts as bound as soon as it has a volume."""
    monkeypatch.setattr(claim_kinds, "is_fully_bound", lambda claim: True)


def claims_are_compared_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans know claims by their names: which nodes reach a volume stays as it was for the pod
    before, even if a CSINode has changed since."""
    right = Planner._static

    def static(self: Planner, one: EnginePodClass, uses: Any) -> Any:
        claims, one.claims = one.claims, None
        try:
            return right(self, one, uses)
        finally:
            one.claims = claims

    monkeypatch.setattr(Planner, "_static", static)


def annotations_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CSINode on which a plugin is migrated from now on is the same as before."""
    monkeypatch.setattr(object_store, "ANNOTATIONS_COUNT", ())


@pytest.mark.parametrize(
    ("break_it", "seed"),
    [
        (limits_are_not_read, 1),
        (annotations_do_not_count, 3314127),
        (claims_are_compared_by_name, 11614),
        (reach_is_not_compared, 6),
        (zones_are_not_compared, 5363),
        (kinds_are_found_without_labels, 16927),
        (drivers_are_not_compared, 1),
        (once_is_often, 0),
        (unbound_is_bound, 0),
    ],
)
def test_control_what_is_left_out_is_noticed(
    break_it: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert_caught(lambda seed: same_effects(seed, n_steps=2 * N_STEPS), SEEDS, known=(seed,))
