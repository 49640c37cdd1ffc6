"""Answers shared by free-device state equal a search on every node, on drawn clusters."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace

from stowplan.columns import NodeTable
from stowplan.framework import ObjectStore
from stowplan.framework.feature_gates import FeatureGates
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim, ResourceClaimStatus
from stowplan.objects.encoding.json_codec import convert
from stowplan.plugins.devices.claim_binding import PendingAllocations, assume_claims
from stowplan.plugins.devices.claim_search import CANNOT_ALLOCATE, ClaimSearch, SearchSettings
from stowplan.plugins.devices.device_selectors import DeviceSelectors
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


def random_claim(rng: random.Random, name: str) -> ResourceClaim:
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
    devices: dict[str, Any] = {"requests": [{"name": "r", "exactly": exactly}]}
    if rng.random() < 0.3:
        devices["constraints"] = [{"matchAttribute": f"{DRIVER}/root"}]
    meta = {"name": name, "namespace": "default", "uid": name, "resourceVersion": "1"}
    return convert({"metadata": meta, "spec": {"devices": devices}}, ResourceClaim)


def differences(seed: int) -> tuple[list[str], int]:
    """Where the answers of a drawn cluster differ while claims are allocated and released, and how
    many nodes answered by their state."""
    rng = random.Random(seed)
    names = [f"n{i}" for i in range(N_NODES)]
    kinds = [random_slice(rng, "n") for _ in range(3)]
    nodes = NodeTable()
    store = ObjectStore([convert({"metadata": {"name": "gpu"}}, DeviceClass)])
    for name in names:
        nodes.add_node(node(name))
        spec = rng.choice(kinds).spec
        spec = replace(spec, node_name=name, pool=replace(spec.pool, name=name))
        store.put(replace(random_slice(rng, name), spec=spec))
    wrong: list[str] = []
    n_shared = 0
    held: list[ResourceClaim] = []
    for step in range(N_STEPS):
        claim = random_claim(rng, f"c{step}")
        store.put(claim)
        fast, plain = (
            ClaimSearch(
                pod("p"), [claim], None, {}, ClusterDevices.of(store, FeatureGates()), SETTINGS
            )
            for _ in range(2)
        )
        found = fast.on_rows(nodes, np.arange(N_NODES))
        fitting = []
        for row, code in enumerate(found.tolist()):
            if code == PER_NODE:
                continue
            n_shared += 1
            want = plain.on_node(nodes.nodes[row], {})
            if want.status != CANNOT_ALLOCATE and not want.status.is_success:
                wrong.append(f"step {step}: {names[row]} fails: {want.status}")
            elif (code == AVAILABLE) != want.status.is_success:
                wrong.append(f"step {step}: {names[row]} answers {code}")
            elif code == AVAILABLE:
                fitting.append(row)
        if fitting:
            answer = fast.known(names[rng.choice(fitting)])
            assert answer is not None
            assumed = assume_claims(pod("p"), [claim], answer.results)
            assumed.apply(PendingAllocations(), store)
            held.append(assumed.claims[0].after)
        if held and rng.random() < 0.3:
            gone = held.pop(rng.randrange(len(held)))
            store.restore(gone)
            store.put(replace(gone, status=ResourceClaimStatus()))
    return wrong, n_shared


@pytest.mark.parametrize("first", [0, 20])
def test_shared_answers_equal_a_search_on_every_node(first: int) -> None:
    n_shared = 0
    for seed in range(first, first + 20):
        wrong, n_found = differences(seed)
        assert wrong == [], seed
        n_shared += n_found
    assert n_shared > 20 * N_NODES * N_STEPS / 4


@pytest.mark.parametrize(
    ("method", "planted"),
    [
        pytest.param("_kind", lambda states, one, pool: 0, id="all devices are alike"),
        pytest.param("devices_changed", lambda states, pools: None, id="changes are not followed"),
    ],
)
def test_a_wrong_variant_is_caught(
    monkeypatch: pytest.MonkeyPatch, method: str, planted: Any
) -> None:
    monkeypatch.setattr(DeviceStates, method, planted)
    assert any(differences(seed)[0] for seed in range(20))
