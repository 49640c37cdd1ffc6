"""DeviceTaintRules and lists of values, each with its feature gate and without."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.framework.feature_gates import FeatureGates
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.devices.device import DeviceClass, DeviceTaintRule
from stowplan.objects.devices.device_claim import DeviceConstraint, ResourceClaim
from stowplan.objects.encoding.json_codec import convert
from stowplan.plugins.devices.device_constraints import ActiveConstraint
from stowplan.plugins.devices.pools.device_taint_rules import TaintedSlices
from tests.scheduler.scheduler_driver import SchedulerDriver
from tests.scheduler.test_resource_claims import DRIVER, claim, claiming, device_slice

Tree = dict[str, Any]
RULES = FeatureGates(dra_device_taint_rules=True)
LISTS = FeatureGates(dra_list_type_attributes=True)
TAINT = {"key": "broken", "value": "yes", "effect": "NoSchedule"}


def taint_rule(
    name: str = "broken", selector: Tree | None = None, version: str = "1", **taint: str
) -> DeviceTaintRule:
    spec: Tree = {"taint": {**TAINT, **taint}}
    if selector is not None:
        spec["deviceSelector"] = selector
    tree = {"metadata": {"name": name, "resourceVersion": version}, "spec": spec}
    return convert(tree, DeviceTaintRule)


def scheduler_of(
    gates: FeatureGates, *devices: Tree, expression: str = "true", claims: tuple[ResourceClaim, ...]
) -> SchedulerDriver:
    driver = SchedulerDriver(gates=gates)
    spec = {"selectors": [{"cel": {"expression": expression}}]}
    gpu = convert({"metadata": {"name": "gpu"}, "spec": spec}, DeviceClass)
    driver.handle(*map(happened.ObjectAdded, (gpu, device_slice(*devices), *claims)))
    return driver


def devices_of(driver: SchedulerDriver) -> list[str]:
    """Names of the devices in the last allocation that was written; [] for none."""
    writes = [one for one in driver.effects if isinstance(one, to_do.Write)]
    if not writes:
        return []
    allocation = writes[-1].value.status.allocation
    return [one.device for one in allocation.devices.results]


def run_claim(driver: SchedulerDriver, name: str = "a") -> None:
    """Add a pod with the claim, and accept the write of the claim's finalizer."""
    driver.handle(happened.PodAdded(claiming("p", name)))


def finish(driver: SchedulerDriver) -> list[str]:
    writes = [one for one in driver.effects if isinstance(one, to_do.Write)]
    if writes:
        driver.handle(happened.WriteDone(writes[-1].effect, writes[-1].uid, "9"))
    return devices_of(driver)


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        (None, []),
        ({}, []),
        ({"driver": DRIVER, "pool": "n1"}, []),
        ({"device": "d0"}, ["d1"]),
        ({"device": "d1"}, ["d0"]),
        ({"driver": "net.example.com"}, ["d0"]),
        ({"pool": "n2", "device": "d0"}, ["d0"]),
    ],
)
def test_a_rule_taints_the_devices_that_it_selects(selector: Tree | None, left: list[str]) -> None:
    driver = scheduler_of(RULES, {"name": "d0"}, {"name": "d1"}, claims=(claim("a"),))
    driver.handle(happened.ObjectAdded(taint_rule(selector=selector)))
    run_claim(driver)
    assert finish(driver) == left


def test_rules_are_not_read_without_their_gate() -> None:
    driver = scheduler_of(FeatureGates(), {"name": "d0"}, claims=(claim("a"),))
    driver.handle(happened.ObjectAdded(taint_rule()))
    run_claim(driver)
    assert finish(driver) == ["d0"]


def test_a_toleration_covers_the_taint_of_a_rule() -> None:
    tolerant = claim("a", tolerations=[{"key": "broken", "operator": "Exists"}])
    driver = scheduler_of(RULES, {"name": "d0"}, claims=(tolerant,))
    driver.handle(happened.ObjectAdded(taint_rule()))
    run_claim(driver)
    assert finish(driver) == ["d0"]


@pytest.mark.parametrize("change", ["deleted", "no longer selects", "has no effect"])
def test_a_waiting_pod_is_tried_again_when_a_rule_goes(change: str) -> None:
    driver = scheduler_of(RULES, {"name": "d0"}, claims=(claim("a"),))
    rule = taint_rule()
    driver.handle(happened.ObjectAdded(rule))
    run_claim(driver)
    assert devices_of(driver) == []
    if change == "deleted":
        driver.handle(happened.ObjectDeleted(rule))
    elif change == "has no effect":
        driver.handle(happened.ObjectUpdated(taint_rule(version="2", effect="None")))
    else:
        driver.handle(happened.ObjectUpdated(taint_rule(version="2", selector={"device": "other"})))
    driver.after(20)
    assert finish(driver) == ["d0"]


def test_slices_stay_the_same_while_nothing_changes() -> None:
    tainted, one, other = TaintedSlices(), device_slice({"name": "d0"}), device_slice()
    rule = taint_rule()
    first = tainted.of([one], [rule])
    assert tainted.of([one], [rule])[0] is first[0]
    assert tainted.of([one], [rule, taint_rule("more")])[0] is not first[0]
    assert tainted.of([other], [rule])[0] is not first[0]
    assert tainted.of([one], []) == [one]


def test_taints_of_rules_come_after_those_of_the_device() -> None:
    own = {"key": "own", "effect": "None"}
    found = TaintedSlices().of(
        [device_slice({"name": "d0", "taints": [own]})], [taint_rule("b"), taint_rule("a", key="a")]
    )
    assert [one.key for one in found[0].spec.devices[0].taints] == ["own", "a", "broken"]


def listed(name: str, **value: Any) -> Tree:
    return {"name": name, "attributes": {"numa": value}}


@pytest.mark.parametrize(
    ("gates", "values", "kind", "found"),
    [
        # d0 and d1 have no value in common, d0 and d2 have 2.
        (LISTS, ({"ints": [0, 2]}, {"ints": [1]}, {"ints": [2, 3]}), "match", ["d0", "d2"]),
        (LISTS, ({"ints": [0, 2]}, {"ints": [1]}, {"int": 2}), "match", ["d0", "d2"]),
        (LISTS, ({"ints": [0]}, {"strings": ["0"]}), "match", []),
        (LISTS, ({"int": 0}, {"int": 1}), "match", []),
        (LISTS, ({"ints": [0, 2]}, {"ints": [2]}, {"ints": [3]}), "distinct", ["d0", "d2"]),
        (LISTS, ({"ints": [0, 2]}, {"ints": [2]}), "distinct", []),
        # Without the gate a list has no value, and equals nothing.
        (FeatureGates(), ({"ints": [0]}, {"ints": [0]}), "match", []),
        (FeatureGates(), ({"int": 0}, {"int": 0}), "match", ["d0", "d1"]),
    ],
)
def test_constraints_on_lists(
    gates: FeatureGates, values: tuple[Tree, ...], kind: str, found: list[str]
) -> None:
    devices = [listed(f"d{i}", **value) for i, value in enumerate(values)]
    pair = [
        {"name": name, "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount",
                                   "count": 1}}
        for name in "rs"
    ]  # fmt: skip
    tree = {
        "metadata": {"name": "a", "uid": "a", "resourceVersion": "1"},
        "spec": {"devices": {"requests": pair,
                             "constraints": [{f"{kind}Attribute": f"{DRIVER}/numa"}]}},
    }  # fmt: skip
    driver = scheduler_of(gates, *devices, claims=(convert(tree, ResourceClaim),))
    run_claim(driver)
    assert finish(driver) == found


def test_a_device_that_is_taken_back_leaves_the_common_values_narrowed() -> None:
    """As in the original."""
    one = ActiveConstraint(DeviceConstraint(match_attribute=f"{DRIVER}/numa"), with_lists=True)
    devices = [
        device_slice(listed(name, ints=values)).spec.devices[0]
        for name, values in (("d0", [0, 1]), ("d1", [1]), ("d2", [0]))
    ]
    places = [(DRIVER, "n1", device.name) for device in devices]
    assert one.add("r", "", devices[0], places[0])
    assert one.add("r", "", devices[1], places[1])
    one.remove("r", "")
    assert not one.add("r", "", devices[2], places[2])


@pytest.mark.parametrize(
    ("gates", "found"), [(LISTS, ["d1"]), (FeatureGates(), [])], ids=["on", "off"]
)
def test_selectors_read_lists(gates: FeatureGates, found: list[str]) -> None:
    expression = f'device.attributes["{DRIVER}"].numa.includes(1)'
    devices = (listed("d0", ints=[0]), listed("d1", ints=[0, 1]))
    driver = scheduler_of(gates, *devices, expression=expression, claims=(claim("a"),))
    run_claim(driver)
    assert finish(driver) == found
