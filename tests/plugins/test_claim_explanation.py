"""What `explain` says about devices: need and have, and what refuses the others."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.apis.resource.node_devices import parse_devices, slices_of
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.node import Node
from stowplan.plugins.devices.device_selectors import DeviceSelectors
from stowplan.plugins.devices.explanation.claim_explanation import ClaimExplanation
from stowplan.plugins.devices.pools.allocated_devices import AllocatedDevices
from stowplan.plugins.devices.pools.device_pools import SliceIndex

DRIVER = "gpu.example.com"
GPU = {
    "name": "gpu",
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
}
CLASSES = {
    "gpu": convert({"metadata": {"name": "gpu"}, "spec": GPU["spec"]}, DeviceClass),
    "any": convert({"metadata": {"name": "any"}}, DeviceClass),
}
NODE = convert({"metadata": {"name": "n1"}}, Node)


def claim(*requests: dict[str, Any], **devices: Any) -> ResourceClaim:
    spec = {"devices": {"requests": list(requests), **devices}}
    return convert({"metadata": {"name": "c", "namespace": "ns"}, "spec": spec}, ResourceClaim)


def request(name: str = "r", class_name: str = "gpu", **more: Any) -> dict[str, Any]:
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": 1, **more}
    return {"name": name, "exactly": exactly}


def holding(*names: str, **capacity: str) -> ResourceClaim:
    """An allocated claim. capacity: of each device, which it shares."""
    results = [
        {"request": "r", "driver": DRIVER, "pool": "n1", "device": name}
        | ({"shareID": "s", "consumedCapacity": capacity} if capacity else {})
        for name in names
    ]
    tree = {
        "metadata": {"name": "other", "namespace": "ns"},
        "status": {"allocation": {"devices": {"results": results}}},
    }
    return convert(tree, ResourceClaim)


def lines(devices: str, asked: ResourceClaim, *others: ResourceClaim) -> list[str]:
    slices, allocated = SliceIndex(), AllocatedDevices()
    specs = [spec for group in parse_devices(devices) for spec in slices_of("n1", group)]
    slices.update(
        convert({"metadata": {"name": f"s{at}"}, "spec": spec}, ResourceSlice)
        for at, spec in enumerate(specs)
    )
    allocated.update(others)
    found = ClaimExplanation(NODE, slices.pools(NODE), CLASSES, allocated, DeviceSelectors())
    return list(found.lines(asked))


def cel(text: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": text}}]


MEMORY = f"device.capacity['{DRIVER}'].memory.compareTo(quantity('90Gi')) >= 0"
FOUR = f"{DRIVER}=4xH100"

CASES: dict[str, tuple[str, ResourceClaim, tuple[ResourceClaim, ...], list[str]]] = {
    "in use": (
        FOUR,
        claim(request(count=3)),
        (holding("gpu-0", "gpu-2"),),
        [
            "claim c, request r: need 3 of class gpu, have 2 of 4 (2 in use); enough with count 2",
        ],
    ),
    "selectors of class and request": (
        f"{FOUR}; net.example.com=2xNIC",
        claim(request(selectors=cel(MEMORY))),
        (),
        [
            f"claim c, request r: need 1 of class gpu, have 0 of 6 (4 not selected by the request: "
            f"{MEMORY}; 2 not selected by class gpu: device.driver == '{DRIVER}'); enough without "
            "this selector of the request",
        ],
    ),
    "taint": (
        f"{FOUR},taint=old=yes:NoSchedule",
        claim(request()),
        (),
        [
            "claim c, request r: need 1 of class gpu, have 0 of 4 (4 untolerated taint "
            "old=yes:NoSchedule); enough with a toleration of old=yes:NoSchedule",
        ],
    ),
    "counters": (
        f"{DRIVER}=1xA100,partitions=2",
        claim(request()),
        (holding("gpu-0"),),
        [
            "claim c, request r: need 1 of class gpu, have 0 of 3 (2 counter gpu-0/parts: need 1, "
            "have 0; 1 in use)",
        ],
    ),
    "capacity": (
        f"{DRIVER}=1xA100,shared",
        claim(request(capacity={"requests": {"memory": "50Gi"}})),
        (holding("gpu-0", memory="40Gi"),),
        [
            "claim c, request r: need 1 of class gpu, have 0 of 1 (1 capacity memory: need 50Gi, "
            "have 40Gi)",
        ],
    ),
    "all devices": (
        FOUR,
        claim(request(allocationMode="All", count=0)),
        (holding("gpu-0"),),
        ["claim c, request r: need all devices of class gpu, have 3 of 4 (1 in use)"],
    ),
    "requests together": (
        f"{DRIVER}=2xH100",
        claim(request("a", count=2), request("b")),
        (),
        [
            "claim c, request a: need 2 of class gpu, have 2 of 2",
            "claim c, request b: need 1 of class gpu, have 2 of 2",
            "claim c: its requests need 3 devices together, 2 serve any of them",
        ],
    ),
    "constraint": (
        FOUR,
        claim(
            request(count=2),
            constraints=[{"matchAttribute": f"{DRIVER}/index"}],
        ),
        (),
        [
            "claim c, request r: need 2 of class gpu, have 4 of 4",
            f"claim c, constraint matchAttribute {DRIVER}/index: 1 with 0, 1 with 1, 1 with 2, "
            "1 with 3",
        ],
    ),
    "alternatives": (
        f"{DRIVER}=1xH100",
        claim(
            {
                "name": "r",
                "firstAvailable": [
                    request("two", count=2)["exactly"] | {"name": "two"},
                    request("none", "any", selectors=cel("false"))["exactly"] | {"name": "none"},
                ],
            }
        ),
        (),
        [
            "claim c, request r/two: need 2 of class gpu, have 1 of 1; enough with count 1",
            "claim c, request r/none: need 1 of class any, have 0 of 1 (1 not selected by the "
            "request: false); enough without this selector of the request",
        ],
    ),
    "an error": (
        f"{DRIVER}=1xH100",
        claim(request(selectors=cel(f"device.attributes['{DRIVER}'].speed > 1"))),
        (),
        [
            "claim c, request r: need 1 of class gpu, have 0 of 1 (1 an error of the request: CEL "
            "runtime error: no such key: speed)",
        ],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_lines(name: str) -> None:
    devices, asked, others, expected = CASES[name]
    assert lines(devices, asked, *others) == expected
