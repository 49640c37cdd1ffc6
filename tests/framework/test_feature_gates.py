"""Feature gates by name: what is accepted, and the words of errors."""

from __future__ import annotations

import msgspec
import pytest

from stowplan.framework.feature_gates import (
    DEPENDENCIES,
    FeatureGateError,
    FeatureGates,
    changed_gates,
    feature_gates_of,
    parse_feature_gates,
)


def test_later_settings_count() -> None:
    gates = parse_feature_gates(["GenericWorkload=true, GangScheduling=T,", "GangScheduling=false"])
    assert changed_gates(gates) == {"GenericWorkload": True}
    assert parse_feature_gates([]) == FeatureGates()


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("GenericWorkload", "missing bool value for GenericWorkload"),
        ("GenericWorkload=yes", "invalid value of GenericWorkload=yes: must be true or false"),
        ("Generic=true", "unrecognized feature gate: Generic"),
        (
            "genericworkload=true",
            "unrecognized feature gate: genericworkload (did you mean 'GenericWorkload'?)",
        ),
        (
            "GangScheduling=true",
            "GangScheduling is enabled, but depends on features that are disabled: "
            "[GenericWorkload]",
        ),
        (
            "DynamicResourceAllocation=false,DRAExtendedResource=false,"
            "DRAWorkloadResourceClaims=true",
            "DRAWorkloadResourceClaims is enabled, but depends on features that are disabled: "
            "[DynamicResourceAllocation GenericWorkload]",
        ),
        (
            "DynamicResourceAllocation=false",
            "DRAExtendedResource is enabled, but depends on features that are disabled: "
            "[DynamicResourceAllocation]",
        ),
    ],
)
def test_what_is_refused(text: str, wanted: str) -> None:
    with pytest.raises(FeatureGateError) as refused:
        parse_feature_gates([text])
    assert str(refused.value).startswith(wanted)


@pytest.mark.parametrize("gate", DEPENDENCIES)
def test_a_gate_with_all_that_it_needs(gate: str) -> None:
    names = {field.name: field.encode_name for field in msgspec.structs.fields(FeatureGates)}
    needed = {gate}
    while True:
        more = {one for each in needed for one in DEPENDENCIES.get(each, ())}
        if more <= needed:
            break
        needed |= more
    gates = feature_gates_of({names[one]: True for one in needed})
    assert gates.generic_workload == ("generic_workload" in needed)
