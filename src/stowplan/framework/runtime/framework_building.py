"""The frameworks of all profiles of a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from stowplan.framework.feature_gates import FeatureGates
from stowplan.framework.handle_state import HandleState
from stowplan.framework.problems import ContractError
from stowplan.framework.profile import Profile
from stowplan.framework.runtime.framework import Framework
from stowplan.framework.runtime.registry import Registry


def build_frameworks(
    profiles: Mapping[str, Profile],
    registry: Registry,
    gates: FeatureGates,
    made: Callable[..., Framework] = Framework,
    in_use: Mapping[str, Framework] | None = None,
) -> dict[str, Framework]:
    """Build a framework per scheduler name; raises ContractError unless all have the same queue
    sort. in_use: frameworks of a running scheduler; those of unchanged profiles are kept."""
    known = in_use or {}
    shared = next((one.shared for one in known.values()), None) or HandleState()
    built: dict[str, Framework] = {}
    for name, profile in profiles.items():
        before = known.get(name)
        if before is not None and before.profile == profile:
            built[name] = before
        else:
            built[name] = made(profile, registry, gates, shared, before=before)
    sorts = {f.at("queueSort")[0].name for f in built.values()}
    if len(sorts) > 1:
        raise ContractError(
            f"profiles sort the queue by {sorted(sorts)}; expected one and the same"
        )
    return built
