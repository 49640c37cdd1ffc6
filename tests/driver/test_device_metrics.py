"""Metrics of waits for devices, and of claims for extended resources."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.driver.live.metrics_recorder import (
    CLAIM_CREATES,
    CONDITION_ALLOCATIONS,
    CONDITION_SECONDS,
    MetricsRecorder,
)
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.devices.device import DeviceClass
from stowplan.objects.devices.device_claim import ResourceClaim
from stowplan.objects.encoding.json_codec import convert
from stowplan.testing import pod
from tests.scheduler.scheduler_driver import SchedulerDriver
from tests.scheduler.test_resource_claims import (
    DRIVER,
    accept,
    bound_pods,
    claiming,
    driver_with,
    written,
)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> MetricsRecorder:
    """Records every call of a scheduler driver."""
    made = MetricsRecorder()
    right = SchedulerDriver.handle

    def handle(driver: SchedulerDriver, *events: Event, heads_max: int = 1000) -> list[Any]:
        made.watch(driver.scheduler)
        effects = right(driver, *events, heads_max=heads_max)
        made.handled(events, effects, driver.now, 0)
        return effects

    monkeypatch.setattr(SchedulerDriver, "handle", handle)
    return made


def waiting_for_devices() -> tuple[SchedulerDriver, ResourceClaim]:
    """A pod whose device must report Ready."""
    conditions = {"bindingConditions": ["Ready"], "bindingFailureConditions": ["Broken"]}
    driver = driver_with({"name": "d0", **conditions})
    driver.handle(happened.PodAdded(claiming("p", "a")))
    accept(driver, "5")
    observed = accept(driver, "6")
    driver.handle(happened.ObjectUpdated(observed))
    return driver, observed


def report(driver: SchedulerDriver, observed: ResourceClaim, kind: str) -> None:
    condition = {"type": kind, "status": "True", "reason": "Fire"}
    devices = [{"driver": DRIVER, "pool": "n1", "device": "d0", "conditions": [condition]}]
    state = convert({"status": {"devices": devices}}, ResourceClaim).status.devices
    meta = replace(observed.metadata, resource_version="7")
    status = replace(observed.status, devices=state)
    driver.handle(happened.ObjectUpdated(replace(observed, metadata=meta, status=status)))


@pytest.mark.parametrize(
    ("kind", "status"), [("Ready", "success"), ("Broken", "failure"), ("", "timeout")]
)
def test_waits_for_devices_are_counted_and_timed(
    recorder: MetricsRecorder, kind: str, status: str
) -> None:
    driver, observed = waiting_for_devices()
    assert not any(name == CONDITION_ALLOCATIONS for name, _ in recorder.counted.counters)
    driver.after(3 if kind else 601)
    if kind:
        report(driver, observed, kind)
    assert bound_pods(driver) == (["p"] if status == "success" else [])
    labels = ("profile", "default-scheduler"), ("driver", DRIVER), ("status", status)
    assert recorder.counted.counters[CONDITION_ALLOCATIONS, labels] == 1
    timed = recorder.counted.histograms[CONDITION_SECONDS, labels]
    assert (timed.count, timed.total) == (1, 3 if kind else 601)


@pytest.mark.parametrize("is_created", [True, False])
def test_claims_for_extended_resources_are_counted(
    recorder: MetricsRecorder, is_created: bool
) -> None:
    driver = driver_with({"name": "d0"})
    spec = {"extendedResourceName": "example.com/gpu"}
    provider = convert({"metadata": {"name": "card"}, "spec": spec}, DeviceClass)
    driver.handle(happened.ObjectAdded(provider))
    driver.handle(happened.PodAdded(pod("p", resources={"example.com/gpu": "1"})))
    if is_created:
        accept(driver, "5")
    else:
        effect = written(driver)
        driver.handle(happened.WriteFailed(effect.effect, effect.uid, 403, "Forbidden"))
    status = "success" if is_created else "failure"
    assert recorder.counted.counters[CLAIM_CREATES, (("status", status),)] == 1
