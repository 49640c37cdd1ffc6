"""Runs of pods with resource claims placed by kernels: effects equal the walk's.

Each wrong variant leaves out one thing that decides which devices are free, or which claims are
alike.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.benchmarks.benchmark_objects import Tree, make_object
from stowplan.columns import NodeTable
from stowplan.columns.array_types import Ints
from stowplan.columns.engine import kernels as compiled
from stowplan.columns.engine import numpy_kernels
from stowplan.cycle.engine.class_arrays import ClassArrays
from stowplan.cycle.engine.device_rows import DeviceRows
from stowplan.framework.feature_gates import FeatureGates
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim, ResourceClaimStatus
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.pod import Pod
from stowplan.plugins.devices.pools.allocated_devices import AllocatedDevices
from stowplan.plugins.devices.pools.cluster_devices import ClusterDevices
from stowplan.plugins.devices.states import class_claims, device_states
from stowplan.plugins.devices.states.device_states import NO_STATE, DeviceStates, _on_node
from stowplan.scheduler import SchedulerOptions
from stowplan.testing import builders
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int
from tests.property.engine_random_walk import Pair, scheduler
from tests.property.wrong import assert_caught
from tests.soak import examples

SEEDS = st.integers(0, 2**32 - 1)
N_STEPS = 4
DRIVER = "gpu.example.com"
TAINT = {"key": "broken", "value": "yes", "effect": "NoSchedule"}
SLICES = {"slices": {"value": "4"}}


def _class(name: str, model: str) -> DeviceClass:
    expression = f'device.attributes["{DRIVER}"].model == "{model}"' if model else "true"
    config = [{"opaque": {"driver": DRIVER, "parameters": {"of": name}}}]
    selectors = [{"cel": {"expression": expression}}]
    return make_object(DeviceClass, name, spec={"selectors": selectors, "config": config})


class NoStates(DeviceStates):
    """Each node has its own answer, found by the search."""

    def of_rows(self, nodes: NodeTable) -> Ints:
        """int64 (n_nodes,): NO_STATE."""
        return np.full(nodes.n_nodes, NO_STATE)


class Devices:
    """Nodes with devices of few kinds, and pods of few templates with claims."""

    def __init__(self, seed: int, kernels: Any) -> None:
        self.rng: RandomSource = np.random.default_rng(seed)
        seed_of_ties = seed if chance(self.rng, 2) else None
        self.pair = Pair(kernels, lambda: scheduler(seed_of_ties, SchedulerOptions()))
        walked = ClusterDevices.of(self.pair.walked._context.shared.object_store, FeatureGates())
        walked.states = NoStates(walked.slices, walked.allocated)
        self.pods: dict[str, Pod] = {}
        self.claims: dict[str, ResourceClaim] = {}
        self._version = 1
        self.names = [f"n{i}" for i in range(random_int(self.rng, 1, 6))]
        n_devices = random_int(self.rng, 1, 6)
        self._kinds = [self._slices(n_devices) for _ in range(random_int(self.rng, 1, 3))]
        self._templates = [self._template() for _ in range(random_int(self.rng, 1, 3))]
        events: list[Event] = [happened.ObjectAdded(_class("any", ""))]
        events.append(happened.ObjectAdded(_class("a", "A")))
        for name in self.names:
            labels = {"disk": "ssd"} if chance(self.rng, 3) else {}
            events.append(happened.NodeAdded(builders.node(name, cpu="4", pods=12, labels=labels)))
            events += self._published(name, pick(self.rng, tuple(self._kinds)), 1)
        if chance(self.rng, 3):
            events += self._shared()
        self.handle(events)

    # Slices.

    def _shared(self) -> list[Event]:
        """A pool that all nodes reach, or those with a label."""
        devices = [self._device(i) for i in range(random_int(self.rng, 1, 4))]
        reach: Tree = {"allNodes": True}
        if chance(self.rng, 2):
            term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
            reach = {"nodeSelector": {"nodeSelectorTerms": [term]}}
        pool = {"name": "a", "generation": 1, "resourceSliceCount": 1}
        tree = {"driver": DRIVER, "pool": pool, "devices": devices, **reach}
        return [happened.ObjectAdded(make_object(ResourceSlice, "shared", spec=tree))]

    def _slices(self, n_devices: int) -> list[Tree]:
        """`spec` of the slices of a kind of node, without names."""
        rng = self.rng
        devices = [self._device(i) for i in range(n_devices)]
        if not chance(rng, 3):
            return [{"devices": devices}]
        # Cards in parts, which share counters.
        for i, device in enumerate(devices):
            amount = {"slices": {"value": str(1 + i % 3)}}
            device["consumesCounters"] = [{"counterSet": "card", "counters": amount}]
        return [{"devices": devices}, {"sharedCounters": [{"name": "card", "counters": SLICES}]}]

    def _device(self, index: int) -> Tree:
        rng = self.rng
        device: Tree = {
            "name": f"d{index}",
            "attributes": {"model": {"string": pick(rng, "AAB")}, "root": {"int": index % 2}},
            "capacity": {"memory": {"value": pick(rng, ("40Gi", "80Gi"))}},
        }
        if chance(rng, 6):
            device["taints"] = [TAINT]
        if chance(rng, 6):
            device["allowMultipleAllocations"] = True
        return device

    def _published(self, name: str, kind: list[Tree], generation: int) -> list[Event]:
        pool = {"name": name, "generation": generation, "resourceSliceCount": len(kind)}
        found: list[Event] = []
        for i, spec in enumerate(kind):
            tree = {"driver": DRIVER, "pool": pool, **spec}
            if "devices" in spec:
                tree["nodeName"] = name
            value = make_object(ResourceSlice, f"{name}-{i}", spec=tree)
            is_new = generation == 1
            found.append((happened.ObjectAdded if is_new else happened.ObjectUpdated)(value))
        return found

    # Pods.

    def _template(self) -> Tree:
        rng = self.rng
        requests = [self._request(f"r{i}") for i in range(pick(rng, (1, 1, 2)))]
        devices: Tree = {"requests": requests}
        if chance(rng, 4):
            devices["constraints"] = [{"matchAttribute": f"{DRIVER}/root"}]
        spec: Tree = {
            "cpu": pick(rng, ("100m", "1")),
            "devices": devices,
            "n": pick(rng, (1, 1, 2)),
        }
        if chance(rng, 3):
            term = {"matchExpressions": [{"key": "disk", "operator": "In", "values": ["ssd"]}]}
            terms = [{"weight": 5, "preference": term}]
            spec["affinity"] = {
                "nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": terms}
            }
        return spec

    def _request(self, name: str) -> Tree:
        if not chance(self.rng, 3):
            return {"name": name, "exactly": self._exactly()}
        easy: Tree = {"deviceClassName": "any", "allocationMode": "ExactCount", "count": 1}
        subs = [easy | {"deviceClassName": "a"}, easy | {"count": 2}, easy]
        if chance(self.rng, 2):
            subs[0] = self._exactly()
            subs[0].pop("adminAccess", None)
        return {
            "name": name,
            "firstAvailable": [{**sub, "name": f"s{i}"} for i, sub in enumerate(subs)],
        }

    def _exactly(self) -> Tree:
        rng = self.rng
        exactly: Tree = {"deviceClassName": pick(rng, ("any", "a")), "allocationMode": "ExactCount"}
        exactly["count"] = pick(rng, (1, 1, 2))
        if chance(rng, 8):
            exactly |= {"allocationMode": "All", "count": 0}
        if chance(rng, 10):
            exactly["adminAccess"] = True
        if chance(rng, 3):
            exactly["tolerations"] = [{"key": "broken", "operator": "Exists"}]
        if chance(rng, 3):
            exactly["capacity"] = {"requests": {"memory": pick(rng, ("20Gi", "50Gi"))}}
        return exactly

    def _pod(self) -> list[Event]:
        template, name = pick(self.rng, tuple(self._templates)), f"p{len(self.pods)}"
        requests = {"cpu": template["cpu"]}
        spec: Tree = {"containers": [{"name": "c", "resources": {"requests": requests}}]}
        if "affinity" in template:
            spec["affinity"] = template["affinity"]
        meta = {"name": name, "namespace": "default", "uid": name}
        tree: Tree = {"metadata": meta, "spec": spec, "status": {}}
        events: list[Event] = []
        if not chance(self.rng, 6):
            owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": name}
            owner["controller"] = True  # type: ignore[assignment]
            uses, made = [], []
            for i in range(template["n"]):
                if chance(self.rng, 8) and self.claims:
                    use = {"name": f"u{i}", "resourceClaimName": pick(self.rng, tuple(self.claims))}
                    uses.append(use)
                    continue
                claim = f"{name}-{i}"
                uses.append({"name": f"u{i}", "resourceClaimTemplateName": "t"})
                made.append({"name": f"u{i}", "resourceClaimName": claim})
                owners = [] if chance(self.rng, 20) else [owner]
                events.append(self._claim(claim, owners, template["devices"]))
            spec["resourceClaims"], tree["status"]["resourceClaimStatuses"] = uses, made
        pod = self.pods[name] = convert(tree, Pod)
        return [*events, happened.PodAdded(pod)]

    def _claim(self, name: str, owners: list[Tree], devices: Tree) -> Event:
        meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
        tree = {"metadata": {**meta, "ownerReferences": owners}, "spec": {"devices": devices}}
        self.claims[name] = convert(tree, ResourceClaim)
        return happened.ObjectAdded(self.claims[name])

    # What happens.

    def step(self) -> None:
        """Pods come, some that are bound go, and drivers start anew."""
        events: list[Event] = []
        for _ in range(random_int(self.rng, 1, 10)):
            events += self._pod()
        if chance(self.rng, 4):
            name = pick(self.rng, tuple(self.names))
            kind = pick(self.rng, tuple(self._kinds))
            events += self._published(name, kind, self._version + 1)
        bound = [pod for pod in self.pods.values() if pod.spec.node_name]
        for pod in bound:
            if chance(self.rng, 4):
                del self.pods[pod.uid]
                events.append(happened.PodDeleted(pod))
                events += self._released(pod)
        self.handle(events)

    def _released(self, pod: Pod) -> list[Event]:
        found: list[Event] = []
        for name in (f"{pod.name}-0", f"{pod.name}-1"):
            claim = self.claims.get(name)
            if claim is not None and claim.status.allocation is not None:
                found.append(self._seen(replace(claim, status=ResourceClaimStatus())))
        return found

    def _seen(self, claim: ResourceClaim) -> Event:
        self._version += 1
        meta = replace(claim.metadata, resource_version=str(self._version))
        self.claims[claim.name] = replace(claim, metadata=meta)
        return happened.ObjectUpdated(self.claims[claim.name])

    def handle(self, events: list[Event]) -> None:
        """Send events to both, and confirm what they write and bind."""
        for _ in range(20):
            events = self._answers(self.pair.handle(events, 0))
            if not events:
                return

    def _answers(self, effects: list[Effect]) -> list[Event]:
        found: list[Event] = []
        for effect in effects:
            if isinstance(effect, to_do.Write):
                assert isinstance(effect.value, ResourceClaim)
                seen = self._seen(effect.value)
                version = str(self._version)
                found += [happened.WriteDone(effect.effect, effect.uid, version), seen]
            elif isinstance(effect, to_do.Bind):
                pod = self.pods[effect.uid]
                seen_pod = replace(pod, spec=replace(pod.spec, node_name=effect.node))
                self.pods[effect.uid] = seen_pod
                found += [
                    happened.BindDone(effect.effect, effect.uid), happened.PodUpdated(seen_pod)
                ]  # fmt: skip
        return found


def same_effects(seed: int, kernels: Any = compiled, n_steps: int = N_STEPS) -> int:
    """Run both; returns the number of pods that kernels placed."""
    found = Devices(seed, kernels)
    for _ in range(n_steps):
        found.step()
    found.pair.compare()
    return found.pair.n_fast


@pytest.mark.parametrize("kernels", [compiled, numpy_kernels], ids=["compiled", "numpy"])
def test_runs_of_pods_with_claims_are_those_of_the_walk(kernels: Any) -> None:
    @settings(max_examples=examples(40), deadline=None)
    @given(SEEDS)
    def check(seed: int) -> None:
        same_effects(seed, kernels)

    check()


def test_kernels_place_pods_with_claims() -> None:
    assert sum(same_effects(seed) for seed in range(10)) > 40


def test_kernels_place_several_pods_with_claims_in_one_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    together: list[int] = []
    right = DeviceRows.n_together
    monkeypatch.setattr(
        DeviceRows,
        "n_together",
        lambda rows, classes: together.append(right(rows, classes)) or together[-1],
    )
    for seed in range(10):
        same_effects(seed)
    assert max(together) > 4


def test_states_are_forgotten_and_numbered_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_states, "_STATES_MAX", 2)
    monkeypatch.setattr(device_states, "_STATES_PER_NODE", 0)
    assert sum(same_effects(seed) for seed in range(6)) > 20


def test_answers_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the classes whose answers are known no two are compared by what is left of them."""
    monkeypatch.setattr(device_states, "_CLAIMS_MAX", 1)
    assert sum(same_effects(seed) for seed in (1, 8)) > 10


def test_rows_placed_earlier_in_a_call_are_asked_again() -> None:
    """A pod without claims was placed on a row, which the next pod's class then knew as it was."""
    assert same_effects(43) > 10


def devices_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is free is read once."""
    monkeypatch.setattr(DeviceRows, "follow", lambda rows, placed=-1: True)


def a_pod_more_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row serves a pod more than there are devices for."""
    right = class_claims.ClassClaims.n_fitting

    def one_more(*given: Any) -> Ints | None:
        found = right(*given)
        return None if found is None else found + (found > 0)

    monkeypatch.setattr(class_claims.ClassClaims, "n_fitting", one_more)


def classes_are_all_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods of any class leave as many for all others as one of their own would."""
    monkeypatch.setattr(class_claims.ClassClaims, "is_alike", lambda one, other: True)


def what_is_taken_together_is_not_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pods of a call all get what was free before it."""
    right = class_claims.ClassClaims.reserve

    def as_before(claims: Any, pod: Any, node: Any, free: int, state: Any) -> int:
        right(claims, pod, node, free, state)
        return free

    monkeypatch.setattr(class_claims.ClassClaims, "reserve", as_before)


def shares_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """A shared device is as free as before."""
    monkeypatch.setattr(AllocatedDevices, "has_shares", False)


def claims_are_all_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Claims count as equal whatever they ask for."""
    right = class_claims.content_of
    monkeypatch.setattr(
        "stowplan.plugins.devices.dynamic_resources.content_of",
        lambda *given: None if right(*given) is None else b"",
    )


def kinds_are_all_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """Devices count as equal whatever they are."""
    monkeypatch.setattr(DeviceStates, "_kind", lambda states, one, pool: 0)


def alternatives_are_not_scored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row counts alike whichever alternative it gives."""
    monkeypatch.setattr(
        class_claims.ClassClaims, "points",
        lambda claims, nodes, rows: np.zeros(rows.shape[0], dtype=np.int64),
    )  # fmt: skip


def alternatives_are_scored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row counts by the alternative that it gave at first."""
    right = ClassArrays.write_raw
    monkeypatch.setattr(
        ClassArrays, "write_raw",
        lambda arrays, number, k, rows, values: (
            right(arrays, number, k, rows, values) if rows.shape[0] == arrays.n_nodes else None
        ),
    )  # fmt: skip


def positions_are_reversed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another node gets other devices than the search would find there."""
    right = DeviceStates._devices_of
    monkeypatch.setattr(
        DeviceStates, "results_on",
        lambda states, claims, state, node: _reversed(states, claims, state, node, right),
    )  # fmt: skip


def _reversed(states: Any, claims: Any, state: int, node: Any, devices_of: Any) -> Any:
    found = states._found.get(state, {}).get(claims)
    if found is None:
        return None
    ids = tuple(reversed(devices_of(states, node).ids))
    return tuple(_on_node(one, ids, node.name) for one in found)


@pytest.mark.parametrize(
    ("break_it", "seed"),
    [
        (devices_are_not_followed, 1),
        (a_pod_more_is_counted, 8),
        (classes_are_all_alike, 107),
        (what_is_taken_together_is_not_seen, 1),
        (shares_do_not_count, 8),
        (claims_are_all_alike, 1),
        (kinds_are_all_alike, 1),
        (positions_are_reversed, 0),
        (alternatives_are_not_scored, 1),
        (alternatives_are_scored_once, 7),
    ],
)
def test_control_what_is_left_out_is_noticed(
    break_it: Callable[[pytest.MonkeyPatch], None], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_it(monkeypatch)
    assert_caught(lambda seed: same_effects(seed, n_steps=2 * N_STEPS), SEEDS, known=(seed,))
