"""Devices of simulated nodes, from their short form to slices."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.apis.resource.node_devices import (
    DEVICES,
    NodeDevicesError,
    device_problems,
    parse_devices,
    slices_of,
)
from stowplan.apis.resource.slice_validation import validate_resource_slice


def slices(text: str) -> list[dict[str, Any]]:
    return [spec for group in parse_devices(text) for spec in slices_of("n1", group)]


@pytest.mark.parametrize(
    "text",
    [
        "gpu.example.com=8xH100",
        "gpu.example.com=2xA100,partitions=7",
        "gpu.example.com=20xA100,partitions=7,compute=108",
        "net.example.com=2xNIC,bandwidth=100G,shared; gpu.example.com=256xT4",
        "gpu.example.com=1xOld,memory=500m,partitions=3,taint=old:NoSchedule,taint=a.b/c=d:None",
    ],
)
def test_slices_are_valid(text: str) -> None:
    assert [list(validate_resource_slice({"spec": spec})) for spec in slices(text)] == [
        [] for _ in slices(text)
    ]


def test_cards() -> None:
    (spec,) = slices("gpu.example.com=2xH100")
    assert spec["pool"] == {"name": "n1", "generation": 1, "resourceSliceCount": 1}
    assert [device["name"] for device in spec["devices"]] == ["gpu-0", "gpu-1"]
    card = spec["devices"][1]
    assert card["capacity"] == {"memory": {"value": "80Gi"}}
    assert card["attributes"]["model"] == {"string": "H100"}
    assert card["attributes"]["index"] == {"int": 1}
    assert card["attributes"]["resource.kubernetes.io/pcieRoot"] == {"string": "pci0000:01"}


def test_partitions_consume_their_card() -> None:
    devices, counters = slices("gpu.example.com=1xA100,partitions=2")
    assert counters["sharedCounters"] == [{"name": "gpu-0", "counters": {"parts": {"value": "2"}}}]
    found = {
        one["name"]: (one["capacity"]["memory"]["value"], one["consumesCounters"])
        for one in devices["devices"]
    }

    def takes(parts: int) -> list[dict[str, Any]]:
        return [{"counterSet": "gpu-0", "counters": {"parts": {"value": str(parts)}}}]

    assert found == {
        "gpu-0": ("80Gi", takes(2)),
        "gpu-0-part-0": ("40960Mi", takes(1)),
        "gpu-0-part-1": ("40960Mi", takes(1)),
    }
    assert devices["pool"]["resourceSliceCount"] == counters["pool"]["resourceSliceCount"] == 2


def test_uuids_differ() -> None:
    devices = [one for spec in slices("a.io=3xX; b.io=3xX") for one in spec["devices"]]
    assert len({one["attributes"]["uuid"]["string"] for one in devices}) == 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "gpu.example.com=H100",
            'Invalid value: "gpu.example.com=H100": must be DRIVER=COUNTxMODEL[,OPTION...], such '
            "as gpu.example.com=8xH100",
        ),
        ("Gpu=1xA", 'Invalid value: "Gpu": must be a DNS subdomain of at most 63 characters'),
        ("a.io=0xA", 'Invalid value: "a.io=0xA": must have a count between 1 and 256, inclusive'),
        ("a.io=1xA; a.io=2xB", 'Duplicate value: "a.io": must have one entry per driver'),
        (
            "a.io=1xA,partitions=1",
            'Invalid value: "partitions=1": must be a number between 2 and 64, inclusive',
        ),
        (
            "a.io=1xA,partitions=2,shared",
            'Invalid value: "a.io=1xA,partitions=2,shared": must have only one of `partitions` or '
            "`shared`",
        ),
        (
            "a.io=1xA,taint=old:Never",
            'Invalid value: "taint=old:Never": must be taint=KEY[=VALUE]:EFFECT, EFFECT one of '
            "NoExecute, NoSchedule, None",
        ),
        (
            "a.io=1xA,memory=much",
            'Invalid value: "memory=much": must be NAME=AMOUNT, partitions=N, shared or '
            "taint=KEY[=VALUE]:EFFECT",
        ),
    ],
)
def test_errors(text: str, message: str) -> None:
    with pytest.raises(NodeDevicesError) as caught:
        parse_devices(text)
    assert str(caught.value) == message
    assert list(device_problems({DEVICES: text})) == [f"{DEVICES}: {message}"]


def test_no_devices() -> None:
    assert parse_devices("") == ()
    assert list(device_problems({})) == []
