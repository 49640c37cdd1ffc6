"""Answers shared by free-device state equal a search on every node, on drawn clusters: devices of
one node and of many, alternatives, claims that are allocated already, extended resources."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from stowplan.columns import NodeTable
from stowplan.framework import OK, ObjectStore
from stowplan.framework.feature_gates import FeatureGates
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim, ResourceClaimStatus
from stowplan.objects.encoding.json_codec import convert
from stowplan.plugins.devices.claim_binding import PendingAllocations, assume_claims
from stowplan.plugins.devices.claim_search import (
    CANNOT_ALLOCATE,
    NOT_AVAILABLE,
    ClaimSearch,
    SearchSettings,
)
from stowplan.plugins.devices.device_selectors import DeviceSelectors
from stowplan.plugins.devices.extended_resources import in_memory_claim
from stowplan.plugins.devices.pools import cluster_devices, device_pools
from stowplan.plugins.devices.pools.allocated_devices import AllocatedDevices
from stowplan.plugins.devices.pools.cluster_devices import ClusterDevices
from stowplan.plugins.devices.states.device_states import AVAILABLE, PER_NODE, DeviceStates
from stowplan.testing import node, pod

DRIVER = "gpu.example.com"
N_NODES = 8
N_STEPS = 10
SETTINGS = SearchSettings(DeviceSelectors(), 20_000, timedelta(minutes=10))
TAINT = {"key": "broken", "value": "yes", "effect": "NoSchedule"}


def random_device(rng: random.Random, name: str) -> dict[str, Any]:
    device: dict[str, Any] = {
        "name": name,
        "attributes": {"model": {"string": rng.choice("AAB")}, "root": {"int": rng.randint(0, 1)}},
        "capacity": {"memory": {"value": rng.choice(("40Gi", "80Gi"))}},
    }
    if rng.random() < 0.15:
        device["taints"] = [TAINT]
    if rng.random() < 0.02:
        device["allowMultipleAllocations"] = True
    return device


def random_slice(rng: random.Random, name: str) -> ResourceSlice:
    devices = [random_device(rng, f"d{i}") for i in range(rng.randint(1, 3))]
    n_slices = 2 if rng.random() < 0.05 else 1
    pool = {"name": name, "generation": 1, "resourceSliceCount": n_slices}
    spec = {"driver": DRIVER, "nodeName": name, "pool": pool, "devices": devices}
    return convert({"metadata": {"name": f"{name}-slice"}, "spec": spec}, ResourceSlice)


def shared_slices(rng: random.Random) -> list[ResourceSlice]:
    """Pools that several nodes reach; their names stand before and after those of nodes."""
    found = []
    for name in ("a", "z"):
        reach = rng.choice(("none", "all", "zone", "each", "parts"))
        if reach == "none":
            continue
        devices = [random_device(rng, f"d{i}") for i in range(rng.randint(1, 3))]
        spec: dict[str, Any] = {"driver": DRIVER, "devices": devices}
        specs = [spec]
        if reach in ("all", "parts"):
            spec["allNodes"] = True
        elif reach == "zone":
            spec["nodeSelector"] = in_zone("1")
        else:
            spec["perDeviceNodeSelection"] = True
            for device in devices:
                one = rng.choice(({"allNodes": True}, {"nodeName": "n1"}, {"nodeSelector": None}))
                device |= one if "nodeSelector" not in one else {"nodeSelector": in_zone("0")}
        if reach == "parts":
            for device in devices:
                amount = {"slices": {"value": str(rng.randint(1, 2))}}
                device["consumesCounters"] = [{"counterSet": "card", "counters": amount}]
            counters = [{"name": "card", "counters": {"slices": {"value": "3"}}}]
            specs.append({"driver": DRIVER, "allNodes": True, "sharedCounters": counters})
        n_slices = len(specs) + (rng.random() < 0.05)
        pool = {"name": name, "generation": 1, "resourceSliceCount": n_slices}
        found += [
            convert({"metadata": {"name": f"{name}-{i}"}, "spec": {**one, "pool": pool}},
                    ResourceSlice)
            for i, one in enumerate(specs)
        ]  # fmt: skip
    return found


def in_zone(zone: str) -> dict[str, Any]:
    need = {"key": "zone", "operator": "In", "values": [zone]}
    return {"nodeSelectorTerms": [{"matchExpressions": [need]}]}


def random_claim(rng: random.Random, name: str) -> ResourceClaim:
    request: dict[str, Any] = {"name": "r", "exactly": random_request(rng)}
    if rng.random() < 0.3:
        subs = [{**random_request(rng), "name": f"s{i}"} for i in range(rng.randint(1, 3))]
        for sub in subs:
            sub.pop("adminAccess", None)
        request = {"name": "r", "firstAvailable": subs}
    devices: dict[str, Any] = {"requests": [request]}
    if rng.random() < 0.3:
        devices["constraints"] = [{"matchAttribute": f"{DRIVER}/root"}]
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    return convert({"metadata": meta, "spec": {"devices": devices}}, ResourceClaim)


def random_request(rng: random.Random) -> dict[str, Any]:
    exactly: dict[str, Any] = {"deviceClassName": "gpu", "allocationMode": "ExactCount"}
    exactly["count"] = rng.choice((1, 1, 2))
    if rng.random() < 0.15:
        exactly |= {"allocationMode": "All", "count": 0}
    if rng.random() < 0.2:
        exactly["adminAccess"] = True
    if rng.random() < 0.3:
        text = f'device.attributes["{DRIVER}"].model == "{rng.choice("AB")}"'
        exactly["selectors"] = [{"cel": {"expression": text}}]
    if rng.random() < 0.3:
        exactly["tolerations"] = [{"key": "broken", "operator": "Exists"}]
    if rng.random() < 0.3:
        exactly["capacity"] = {"requests": {"memory": rng.choice(("40Gi", "80Gi"))}}
    return exactly


class RandomCluster:
    """Nodes with drawn devices, and the claims that have some of them."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = rng = random.Random(seed)
        self.names = [f"n{i}" for i in range(N_NODES)]
        kinds = [random_slice(rng, "n") for _ in range(3)]
        self.nodes = NodeTable()
        provided = {"extendedResourceName": "example.com/gpu"}
        self.store = ObjectStore([convert({"metadata": {"name": "gpu"}, "spec": provided},
                                          DeviceClass)])  # fmt: skip
        for one in shared_slices(rng):
            self.store.put(one)
        for i, name in enumerate(self.names):
            more = {"example.com/gpu": "1"} if rng.random() < 0.2 else {}
            self.nodes.add_node(node(name, labels={"zone": str(i % 2)}, resources=more))
            if rng.random() < 0.1:
                continue
            spec = rng.choice(kinds).spec
            spec = replace(spec, node_name=name, pool=replace(spec.pool, name=name))
            self.store.put(replace(random_slice(rng, name), spec=spec))
        self.held: list[ResourceClaim] = []

    def searches(self, claims: list[ResourceClaim]) -> tuple[ClaimSearch, ClaimSearch]:
        """Two searches for the same claims, sometimes with extended resources."""
        asking, amounts = pod("p"), {}
        extended = None
        if self.rng.random() < 0.3:
            asking, amounts = pod("p", resources={"example.com/gpu": "1"}), {"example.com/gpu": 1}
            extended = in_memory_claim(asking)
        devices = ClusterDevices.of(self.store, FeatureGates())
        fast, plain = (
            ClaimSearch(asking, claims, extended, amounts, devices, SETTINGS) for _ in range(2)
        )
        whole = plain.asked
        # Begins at the first device every time.
        plain.asked = lambda *given: replace(whole(*given), content=None)  # type: ignore[method-assign]
        return fast, plain

    def step(self, number: int) -> tuple[list[str], int]:
        """A further claim: where the answers differ, and how many nodes answered by their state."""
        rng, names = self.rng, self.names
        # Claims ask for the same now and then.
        claim = random_claim(random.Random(10 * self.seed + rng.randrange(6)), f"c{number}")
        self.store.put(claim)
        claims = [claim]
        if self.held and rng.random() < 0.3:
            claims = [rng.choice(self.held), claim] if rng.random() < 0.7 else [self.held[0]]
        fast, plain = self.searches(claims)
        codes = fast.on_rows(self.nodes, np.arange(N_NODES)).tolist()
        scores = fast.scores_of(self.nodes, np.arange(N_NODES)).tolist()
        wrong, fitting = [], []
        for row, code in enumerate(codes):
            name = names[row]
            want = plain.on_node(self.nodes.nodes[row], self.nodes.info(row).allocatable)
            if code == PER_NODE:
                continue
            if want.status != (OK, CANNOT_ALLOCATE, None, NOT_AVAILABLE)[code]:
                wrong.append(f"step {number}: {name} answers {code}, not {want.status}")
            elif code == AVAILABLE:
                fitting.append(row)
                if fast.known(name) != want:
                    wrong.append(f"step {number}: {name} gets {fast.known(name)}, not {want}")
                if scores[row] != plain.score(name):
                    wrong.append(f"step {number}: {name} scores {scores[row]}")
            elif fast.unavailable_on(name) != want.unavailable:
                wrong.append(f"step {number}: {name} cannot use {fast.unavailable_on(name)}")
        if fitting and claim in claims:
            self.take(fast, claim, names[rng.choice(fitting)])
        if self.held and rng.random() < 0.3:
            gone = self.held.pop(rng.randrange(len(self.held)))
            self.store.restore(gone)
            self.store.put(replace(gone, status=ResourceClaimStatus()))
        return wrong, sum(code != PER_NODE for code in codes)

    def take(self, search: ClaimSearch, claim: ResourceClaim, name: str) -> None:
        """Give the claim what the search has found on a node."""
        answer = search.known(name)
        assert answer is not None
        assumed = assume_claims(pod("p"), [claim], answer.results[:1])
        assumed.apply(PendingAllocations(), self.store)
        self.held.append(assumed.claims[0].after)


def differences(seed: int) -> tuple[list[str], int]:
    """Where the answers of a drawn cluster differ while claims are allocated and released, and how
    many nodes answered by their state."""
    cluster = RandomCluster(seed)
    wrong: list[str] = []
    n_shared = 0
    for step in range(N_STEPS):
        found, n_found = cluster.step(step)
        wrong += found
        n_shared += n_found
    return wrong, n_shared


@pytest.fixture(autouse=True)
def every_list_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_pools, "LONG_MIN", 1)


@pytest.mark.parametrize("first", [0, 20])
def test_shared_answers_equal_a_search_on_every_node(first: int) -> None:
    n_shared = 0
    for seed in range(first, first + 20):
        wrong, n_found = differences(seed)
        assert wrong == [], seed
        n_shared += n_found
    assert n_shared > 20 * N_NODES * N_STEPS / 4


def without_revisions(states: DeviceStates, pair: int) -> None:
    """States of shared pools stay as they are."""
    if states._state_of[pair] < 0:
        states._state_of[pair] = states._n_states
        states._n_states += 1


def test_a_search_that_forgets_what_was_given_back_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Forgetful(AllocatedDevices):
        n_releases = property(lambda self: 0, lambda self, n: None)  # type: ignore[assignment]

    monkeypatch.setattr(cluster_devices, "AllocatedDevices", Forgetful)
    assert any(differences(seed)[0] for seed in range(29, 80))


@pytest.mark.parametrize(
    ("method", "planted"),
    [
        pytest.param("_kind", lambda states, one, pool: 0, id="all devices are alike"),
        pytest.param("devices_changed", lambda states, pools: None, id="changes are not followed"),
        pytest.param("_follow_form", without_revisions, id="changes of shared pools are not"),
        pytest.param("_number_of", lambda states, form, shared: 0, id="all see the same pools"),
    ],
)
def test_a_wrong_variant_is_caught(
    monkeypatch: pytest.MonkeyPatch, method: str, planted: Any
) -> None:
    monkeypatch.setattr(DeviceStates, method, planted)
    assert any(differences(seed)[0] for seed in range(20))
