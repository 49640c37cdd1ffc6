"""Feature gates that affect decisions, with the defaults of Kubernetes 1.36."""

from __future__ import annotations

from collections.abc import Mapping
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
    """The gates that decisions depend on. Locked gates and unread gates are left out."""

    taint_toleration_comparison_operators: bool = False
    storage_capacity_scoring: bool = False
    volume_limit_scaling: bool = False
    sidecar_containers: bool = True
    node_declared_features: bool = True
    dynamic_resource_allocation: bool = True
    dra_extended_resource: bool = msgspec.field(default=True, name="DRAExtendedResource")
    generic_workload: bool = False
    gang_scheduling: bool = False
    topology_aware_workload_scheduling: bool = False
    workload_aware_preemption: bool = False
    dra_workload_resource_claims: bool = msgspec.field(
        default=False, name="DRAWorkloadResourceClaims"
    )
    scheduler_async_preemption: bool = True
    scheduler_pop_from_backoff_q: bool = True
    nominated_node_name_for_expectation: bool = True
