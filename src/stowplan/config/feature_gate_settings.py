"""Feature gates as they are set by name: checked, with the gates that each depends on.

Source: kubernetes v1.36, component-base/featuregate and pkg/features (dependencies).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from stowplan.framework.feature_gates import FeatureGates
from stowplan.framework.problems import did_you_mean

_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})

DEPENDENCIES: Mapping[str, tuple[str, ...]] = {
    "DRAExtendedResource": ("DynamicResourceAllocation",),
    "DRAWorkloadResourceClaims": ("DynamicResourceAllocation", "GenericWorkload"),
    "GangScheduling": ("GenericWorkload",),
    "TopologyAwareWorkloadScheduling": ("GenericWorkload",),
    "WorkloadAwarePreemption": ("GangScheduling",),
}
"""Gate -> gates without which it may not be on."""


class FeatureGateError(ValueError):
    """Settings of gates that cannot be used; the text names gate, value and what is allowed."""


def parse_feature_gates(texts: Iterable[str]) -> FeatureGates:
    """The gates of texts `A=true,B=false`; a later setting of a gate overrides an earlier one.
    Raises FeatureGateError."""
    settings: dict[str, bool] = {}
    for text in texts:
        for part in filter(None, (one.strip() for one in text.split(","))):
            name, is_pair, value = (one.strip() for one in part.partition("="))
            if not is_pair:
                raise FeatureGateError(f"missing bool value for {name}")
            if value not in _TRUE | _FALSE:
                raise FeatureGateError(f"invalid value of {name}={value}: must be true or false")
            settings[name] = value in _TRUE
    return feature_gates_of(settings)


def feature_gates_of(settings: Mapping[str, bool]) -> FeatureGates:
    """The defaults with these settings (gate -> enabled); raises FeatureGateError for an unknown
    gate, and for one that is on without those that it depends on."""
    names = {field.encode_name: field.name for field in msgspec.structs.fields(FeatureGates)}
    for name in settings:
        if name not in names:
            hint = did_you_mean(name, names)
            allowed = f"must be one of: {', '.join(sorted(names))}"
            raise FeatureGateError(
                f"unrecognized feature gate: {name}" + (f" ({hint})" if hint else f"; {allowed}")
            )
    gates = FeatureGates(**{names[name]: on for name, on in settings.items()})
    # As in the original also one that is on by default.
    for name, needed in DEPENDENCIES.items():
        missing = [one for one in needed if not getattr(gates, names[one])]
        if missing and getattr(gates, names[name]):
            raise FeatureGateError(
                f"{name} is enabled, but depends on features that are disabled: "
                f"[{' '.join(missing)}]"
            )
    return gates


def changed_gates(gates: FeatureGates) -> dict[str, bool]:
    """The gates that differ from their defaults, by name."""
    defaults = FeatureGates()
    return {
        field.encode_name: getattr(gates, field.name)
        for field in msgspec.structs.fields(FeatureGates)
        if getattr(gates, field.name) != getattr(defaults, field.name)
    }
