"""Feature gates that affect decisions, with the defaults of Kubernetes 1.36, and how they are set.

Source: kubernetes v1.36, component-base/featuregate and pkg/features (dependencies).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Self

import msgspec

from stowplan.framework.problems import ConfigError, Problem, did_you_mean


class FeatureGateSet(msgspec.Struct, frozen=True):
    """Base of sets of gates: one bool field with a default per gate, renamed to the gate's name."""

    @classmethod
    def of(cls, settings: Mapping[str, bool], source: str = "feature gates") -> Self:
        """The defaults with `settings` (gate name -> enabled) applied; raises ConfigError."""
        names = {f.encode_name: f.name for f in msgspec.structs.fields(cls)}
        unknown = [
            Problem(name, "an unknown gate", ", ".join(names), did_you_mean(name, names))
            for name in settings
            if name not in names
        ]
        if unknown:
            raise ConfigError(source, unknown)
        return cls(**{names[name]: on for name, on in settings.items()})


class FeatureGates(FeatureGateSet, frozen=True, rename="pascal"):
    """The gates that decisions, and the objects that they are about, depend on. Locked gates and
    unread gates are left out."""

    taint_toleration_comparison_operators: bool = False
    storage_capacity_scoring: bool = False
    volume_limit_scaling: bool = False
    sidecar_containers: bool = True
    node_declared_features: bool = True
    dynamic_resource_allocation: bool = True
    dra_extended_resource: bool = msgspec.field(default=True, name="DRAExtendedResource")
    dra_device_taint_rules: bool = msgspec.field(default=False, name="DRADeviceTaintRules")
    dra_list_type_attributes: bool = msgspec.field(default=False, name="DRAListTypeAttributes")
    generic_workload: bool = False
    gang_scheduling: bool = False
    topology_aware_workload_scheduling: bool = False
    workload_aware_preemption: bool = False
    dra_workload_resource_claims: bool = msgspec.field(
        default=False, name="DRAWorkloadResourceClaims"
    )
    workload_with_job: bool = False
    scheduler_async_preemption: bool = True
    scheduler_pop_from_backoff_q: bool = True
    nominated_node_name_for_expectation: bool = True


_TRUE = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE = frozenset({"0", "f", "F", "FALSE", "false", "False"})

DEPENDENCIES: Mapping[str, tuple[str, ...]] = {
    "dra_extended_resource": ("dynamic_resource_allocation",),
    "dra_device_taint_rules": ("dynamic_resource_allocation",),
    "dra_list_type_attributes": ("dynamic_resource_allocation",),
    "dra_workload_resource_claims": ("dynamic_resource_allocation", "generic_workload"),
    "gang_scheduling": ("generic_workload",),
    "topology_aware_workload_scheduling": ("generic_workload",),
    "workload_aware_preemption": ("gang_scheduling",),
    "workload_with_job": ("generic_workload",),
}
"""Field of `FeatureGates` -> fields of the gates without which it may not be on."""


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
    titles = {field: name for name, field in names.items()}
    for field, needed in DEPENDENCIES.items():
        missing = [titles[one] for one in needed if not getattr(gates, one)]
        if missing and getattr(gates, field):
            raise FeatureGateError(
                f"{titles[field]} is enabled, but depends on features that are disabled: "
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
