"""Volcano's configuration file: what runs Volcano is read as it is; mistakes have their path."""

import pytest

from stowplan.config.queue_models.volcano_configuration import (
    OFF_BY_DEFAULT,
    SWITCHES,
    VolcanoConfiguration,
    parse_volcano,
)
from stowplan.framework import ConfigError

# As shipped, for its own tests.
SHIPPED = """
actions: "enqueue, allocate, backfill, reclaim, preempt"
tiers:
- plugins:
  - name: priority
  - name: gang
    enablePreemptable: false
  - name: conformance
  - name: sla
- plugins:
  - name: overcommit
  - name: drf
    enablePreemptable: false
  - name: predicates
    arguments:
      predicate.DynamicResourceAllocationEnable: true
  - name: proportion
  - name: nodeorder
  - name: binpack
  - name: network-topology-aware
"""


def entry(found: VolcanoConfiguration, name: str) -> frozenset[str]:
    return next(one.enabled for tier in found.tiers for one in tier if one.name == name)


def test_a_shipped_file() -> None:
    found = parse_volcano(SHIPPED, "volcano-scheduler-ci.conf")
    assert found.actions == ("enqueue", "allocate", "backfill", "reclaim", "preempt")
    assert [[one.name for one in tier] for tier in found.tiers] == [
        ["priority", "gang", "conformance", "sla"],
        [
            "overcommit", "drf", "predicates", "proportion", "nodeorder", "binpack",
            "network-topology-aware",
        ],
    ]  # fmt: skip
    assert entry(found, "priority") == frozenset(SWITCHES) - OFF_BY_DEFAULT
    assert entry(found, "priority") - entry(found, "gang") == {"enablePreemptable"}
    assert found.warnings == ()


def test_the_default() -> None:
    found = parse_volcano("", "default")
    assert found.actions == ("enqueue", "allocate", "backfill")
    assert len(found.tiers) == 2


def test_arguments_of_plugins_and_actions() -> None:
    found = parse_volcano(
        """
actions: "allocate, gangreclaim"
tiers:
- plugins:
  - name: capacity
    enableHierarchy: true
    arguments: {ancestorReclaimLevel: 2}
  - name: tdm
    arguments: {tdm.revocable-zone.rz1: 10:00-21:00}
configurations:
- name: gangreclaim
  arguments: {maxDomains: 4, allowWholeBundle: false}
""",
        "conf",
    )
    assert found.tiers[0][0].arguments == {"ancestorReclaimLevel": 2}
    assert "enableHierarchy" in found.tiers[0][0].enabled
    assert found.tiers[0][1].arguments == {"tdm.revocable-zone.rz1": "10:00-21:00"}
    assert found.arguments == {"gangreclaim": {"maxDomains": 4, "allowWholeBundle": False}}


def test_plugins_that_have_no_effect_are_warned_about() -> None:
    found = parse_volcano("actions: allocate\ntiers:\n- plugins: [{name: extender}]\n", "conf")
    (warning,) = found.warnings
    assert warning.startswith("tiers[0].plugins[0].name: plugin 'extender' has no effect")


def test_arguments_of_devices_that_the_model_does_not_have_are_warned_about() -> None:
    text = "actions: allocate\ntiers:\n- plugins: [{name: predicates, arguments: {%s: true}}]\n"
    found = parse_volcano(text % "predicate.GPUSharingEnable", "conf")
    assert "predicate.GPUSharingEnable" in found.warnings[0]
    assert found.tiers[0][0].arguments == {}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("actions: alocate", "conf: actions: Invalid value: 'alocate'"),
        ("tiers: []", "conf: actions: expected a text"),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: gangs",
            "tiers[0].plugins[0].name: Invalid value: 'gangs'",
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: gang\n    enableJobReadyy: true",
            "tiers[0].plugins[0].enableJobReadyy: Unknown field",
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n"
            "    arguments: {binpack.weigth: 1}",
            "(did you mean 'binpack.weight'?)",
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: binpack\n"
            "    arguments: {binpack.weight: high}",
            "expected an integer",
        ),
        (
            "actions: allocate\ntiers:\n- plugins:\n  - name: drf\n    enableHierarchy: true\n"
            "  - name: proportion",
            "as they conflict",
        ),
        ("actions: [", "conf: line 1"),
        ("actions: allocate\nconfigurations:\n- name: allocat", "configurations[0].name"),
    ],
)
def test_mistakes(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_volcano(text, "conf")
    assert message in str(raised.value)
