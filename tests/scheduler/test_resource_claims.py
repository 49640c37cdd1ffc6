"""Claims in the binding cycle: assumed, written, waited for, released."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.devices.device import DeviceClass, ResourceSlice
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.pod import Pod
from stowplan.testing import pod
from tests.scheduler.scheduler_driver import SchedulerDriver

DRIVER = "gpu.example.com"


def device_slice(*devices: dict[str, Any]) -> ResourceSlice:
    tree = {
        "metadata": {"name": "n1-gpus"},
        "spec": {
            "driver": DRIVER,
            "nodeName": "n1",
            "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1},
            "devices": list(devices),
        },
    }
    return convert(tree, ResourceSlice)


def claim(name: str, version: str = "1", **exactly: Any) -> ResourceClaim:
    request = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **exactly}
    tree = {
        "metadata": {"name": name, "uid": name, "resourceVersion": version},
        "spec": {"devices": {"requests": [{"name": "r", "exactly": request}]}},
    }
    return convert(tree, ResourceClaim)


def claiming(name: str, claim_name: str) -> Pod:
    one = pod(name)
    used = convert(
        {"spec": {"resourceClaims": [{"name": "c", "resourceClaimName": claim_name}]}}, Pod
    )
    return replace(one, spec=replace(one.spec, resource_claims=used.spec.resource_claims))


def driver_with(*devices: dict[str, Any], claims: tuple[str, ...] = ("a", "b")) -> SchedulerDriver:
    driver = SchedulerDriver()
    selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
    gpu = convert({"metadata": {"name": "gpu"}, "spec": {"selectors": [selector]}}, DeviceClass)
    objects = (gpu, device_slice(*devices), *map(claim, claims))
    driver.handle(*map(happened.ObjectAdded, objects))
    return driver


def written(driver: SchedulerDriver) -> to_do.Write:
    return driver.last(to_do.Write)


def accept(driver: SchedulerDriver, version: str) -> ResourceClaim:
    """Accept the last write, and show it by the watch."""
    write = written(driver)
    driver.handle(happened.WriteDone(write.effect, write.uid, version))
    assert isinstance(write.value, ResourceClaim)
    return replace(write.value, metadata=replace(write.value.metadata, resource_version=version))


def bound_pods(driver: SchedulerDriver) -> list[str]:
    return [effect.name for effect in driver.effects if isinstance(effect, to_do.Bind)]


def test_a_claim_is_written_before_its_pod_is_bound() -> None:
    driver = driver_with({"name": "d0"})
    driver.handle(happened.PodAdded(claiming("p", "a")))
    assert written(driver).patch == {
        "metadata": {"finalizers": ["resource.kubernetes.io/delete-protection"]}
    }
    assert written(driver).value.metadata.resource_version == "1"
    accept(driver, "5")
    status = written(driver).patch["status"]
    # The second write is based on the version that the first one made.
    assert written(driver).value.metadata.resource_version == "5"
    assert list(status["reservedFor"]) == [{"resource": "pods", "name": "p", "uid": "default/p"}]
    results = status["allocation"]["devices"]["results"]
    assert list(results) == [{"request": "r", "driver": DRIVER, "pool": "n1", "device": "d0"}]
    assert bound_pods(driver) == []
    observed = accept(driver, "6")
    driver.handle(happened.ObjectUpdated(observed))
    assert bound_pods(driver) == ["p"]


def test_two_pods_never_get_one_device() -> None:
    driver = driver_with({"name": "d0"})
    driver.handle(happened.PodAdded(claiming("p", "a")), happened.PodAdded(claiming("q", "b")))
    writers = {effect.uid for effect in driver.effects if isinstance(effect, to_do.Write)}
    assert writers == {"default/p"}
    assert "cannot allocate all claims" in driver.last(to_do.PatchStatus, "q").message


def test_a_pod_waits_while_its_claim_is_being_allocated_for_another() -> None:
    driver = driver_with({"name": "d0"}, {"name": "d1"})
    driver.handle(happened.PodAdded(claiming("p", "a")), happened.PodAdded(claiming("q", "a")))
    text = "resource claim default/a is in the process of being allocated"
    assert text in driver.last(to_do.PatchStatus, "q").message


def test_a_refused_write_releases_the_device() -> None:
    driver = driver_with({"name": "d0"})
    driver.handle(happened.PodAdded(claiming("p", "a")))
    write = written(driver)
    driver.handle(happened.WriteFailed(write.effect, write.uid, 409, "conflict"))
    driver.handle(happened.PodAdded(claiming("q", "b")))
    assert written(driver).uid == "default/q"


@pytest.mark.parametrize(
    ("condition", "outcome"),
    [
        (None, "waits"),
        ({"type": "Ready", "status": "True"}, "bound"),
        ({"type": "Broken", "status": "True", "reason": "Fire"}, "failed"),
    ],
)
def test_binding_conditions(condition: dict[str, Any] | None, outcome: str) -> None:
    conditions = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
    driver = driver_with({"name": "d0", **conditions})
    driver.handle(happened.PodAdded(claiming("p", "a")))
    accept(driver, "5")
    observed = accept(driver, "6")
    driver.handle(happened.ObjectUpdated(observed))
    if condition is not None:
        tree = {"status": {"devices": [
            {"driver": DRIVER, "pool": "n1", "device": "d0", "conditions": [condition]}
        ]}}  # fmt: skip
        state = convert(tree, ResourceClaim).status.devices
        ready = replace(
            observed,
            metadata=replace(observed.metadata, resource_version="7"),
            status=replace(observed.status, devices=state),
        )
        driver.handle(happened.ObjectUpdated(ready))
    assert bound_pods(driver) == (["p"] if outcome == "bound" else [])
    if outcome == "failed":
        assert "reason=Fire" in driver.last(to_do.PatchStatus, "p").message
    events = [e for e in driver.effects if isinstance(e, to_do.RecordEvent)]
    assert (events[0].reason, events[0].type, events[0].note) == (
        "BindingConditionsPending",
        "Normal",
        "waiting for binding conditions for device on node n1",
    )


def test_devices_that_do_not_become_ready_time_out() -> None:
    driver = driver_with({"name": "d0", "bindingConditions": ["Ready"]})
    driver.handle(happened.PodAdded(claiming("p", "a")))
    accept(driver, "5")
    driver.handle(happened.ObjectUpdated(accept(driver, "6")))
    driver.after(601)
    assert bound_pods(driver) == []
    assert "device binding timeout" in driver.last(to_do.PatchStatus, "p").message


def test_a_claim_deleted_in_between_fails_the_attempt() -> None:
    driver = driver_with({"name": "d0"})
    driver.handle(happened.PodAdded(claiming("p", "a")))
    accept(driver, "5")
    accept(driver, "6")
    driver.handle(happened.ObjectDeleted(claim("a")))
    assert bound_pods(driver) == []
    text = 'could not find ResourceClaim "default/a"'
    assert text in driver.last(to_do.PatchStatus, "p").message


def test_a_pod_whose_claim_is_its_own_already_is_bound_after_a_restart() -> None:
    driver = driver_with({"name": "d0"})
    driver.handle(happened.PodAdded(claiming("p", "a")))
    accept(driver, "5")
    done = accept(driver, "6")
    again = driver_with({"name": "d0"}, claims=("b",))
    again.handle(happened.ObjectAdded(done), happened.PodAdded(claiming("p", "a")))
    assert bound_pods(again) == ["p"]
    assert not any(isinstance(effect, to_do.Write) for effect in again.effects)


def test_a_version_without_the_allocation_does_not_release_the_device() -> None:
    driver = driver_with({"name": "d0"})
    driver.handle(happened.PodAdded(claiming("p", "a")))
    with_finalizer = accept(driver, "5")
    driver.handle(happened.ObjectUpdated(with_finalizer))
    driver.handle(happened.PodAdded(claiming("q", "b")), happened.PodAdded(claiming("r", "a")))
    assert "cannot allocate all claims" in driver.last(to_do.PatchStatus, "q").message
    text = "resource claim default/a is in the process of being allocated"
    assert text in driver.last(to_do.PatchStatus, "r").message
    write = written(driver)
    driver.handle(happened.WriteFailed(write.effect, write.uid, 409, "conflict"))
    driver.handle(happened.PodAdded(claiming("s", "b")))
    assert written(driver).uid == "default/s"
