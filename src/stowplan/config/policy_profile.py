"""From a validated policy to the profile that decides by it.

The predicates and priorities of 1.13 filter and score; queue order, scheduling gates, preemption
and binding are the current ones.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from stowplan.config.model import Extender
from stowplan.config.policy_document import PredicateArgument, PriorityArgument, arguments_of
from stowplan.config.policy_names import PREDICATE_ORDER, PolicyGates
from stowplan.config.strict_decoder import Problems
from stowplan.framework.extension_points import EXTENSION_POINTS
from stowplan.framework.profile import PluginUse, Profile
from stowplan.framework.runtime.registry import Registry
from stowplan.objects.pod import DEFAULT_SCHEDULER

CURRENT_PLUGINS = ("SchedulingGates", "PrioritySort", "DefaultPreemption", "DefaultBinder")
"""Current plugins around the policy, each at every extension point that it implements."""

EQUAL_PRIORITY = "EqualPriority"
_SCORING = ("preScore", "score")
_BALANCED = "BalancedResourceAllocation"
_RESOURCES = ("GeneralPredicates", "PodFitsResources")
_ATTACHING = (
    "MaxEBSVolumeCount",
    "MaxGCEPDVolumeCount",
    "MaxAzureDiskVolumeCount",
    "MaxCSIVolumeCountPred",
)
_AFFINITY = "InterPodAffinityPriority"
_TENTHS = 10


class Predicate(msgspec.Struct, frozen=True):
    """A predicate by name. rule: its plugin."""

    name: str
    rule: str
    argument: PredicateArgument | None = None

    @property
    def runs(self) -> bool:
        """False for a name without a place in the fixed order."""
        return self.name in PREDICATE_ORDER

    def args_in(self, registry: Registry) -> Any:
        """The plugin's arguments, None where the policy has none."""
        return _args(self.argument, self.rule, registry)


class PolicyPriority(msgspec.Struct, frozen=True):
    """A priority by name, with its weight. rule: its plugin."""

    name: str
    weight: int
    rule: str
    argument: PriorityArgument | None = None

    def args_in(self, registry: Registry) -> Any:
        """The plugin's arguments, None where the policy has none."""
        return _args(self.argument, self.rule, registry)


class Policy(msgspec.Struct, frozen=True):
    """Predicates, priorities and settings of a Policy file.

    predicates: in call order, then those that never run. priorities: by name.
    """

    predicates: tuple[Predicate, ...]
    priorities: tuple[PolicyPriority, ...]
    hard_pod_affinity_weight: int = 1
    checks_all_filters: bool = False
    extenders: tuple[Extender, ...] = ()
    gates: PolicyGates = PolicyGates()

    def ignored_resources(self) -> tuple[str, ...]:
        """Resources that extenders manage and predicates ignore."""
        managed = [one for extender in self.extenders for one in extender.managed_resources]
        return tuple(one.name for one in managed if one.ignored_by_scheduler)


class _ProfilePlugin(msgspec.Struct, frozen=True):
    """A plugin, its name in the profile, and its extension points."""

    name: str
    rule: str
    points: tuple[str, ...]
    weight: int = 1
    args: Any = None


def profile_of(
    policy: Policy, registry: Registry, defaults: Sequence[PluginUse], problems: Problems
) -> Profile:
    """The profile of a policy.

    Out-of-tree plugins run after the policy's, where the policy or the default list names them.
    Their scores are divided by ten, as priorities end at 10.
    """
    own = _third_party_plugins(policy, registry, defaults)
    parts = list(_profile_plugins(policy, registry, own))
    missing = [part.rule for part in parts if part.rule not in registry]
    for rule in dict.fromkeys(missing):
        problems.add("kind", f"a policy with {rule}", "a registry with the rules of 1.13")
    if missing:
        return Profile(DEFAULT_SCHEDULER, {})
    points = {
        point: tuple(
            PluginUse(part.name, part.weight if point == "score" else 1)
            for part in parts
            if point in part.points
        )
        for point in EXTENSION_POINTS
    }
    args = {part.name: part.args for part in parts if part.args is not None}
    aliases = {part.name: part.rule for part in parts if part.name != part.rule}
    return Profile(
        DEFAULT_SCHEDULER,
        points,
        args,
        aliases=aliases,
        checks_all_filters=policy.checks_all_filters,
        divisors={name: _TENTHS for name in own if "score" in registry[name].points},
    )


def _profile_plugins(
    policy: Policy, registry: Registry, own: Mapping[str, int]
) -> Iterator[_ProfilePlugin]:
    """All plugins of the profile, in call order. own: see `_third_party_plugins`."""
    taken = {*CURRENT_PLUGINS, *own}
    for name in CURRENT_PLUGINS:
        yield _profile_plugin(name, name, registry)
    for predicate in policy.predicates:
        if predicate.runs:
            taken.add(predicate.name)
            part = _profile_plugin(predicate.name, predicate.rule, registry, without=_SCORING)
            yield msgspec.structs.replace(part, args=_args_of(predicate, policy, registry))
    scored = [p for p in policy.priorities if p.rule not in own]
    for priority in scored:
        name = f"{priority.name} (priority)" if priority.name in taken else priority.name
        part = _profile_plugin(name, priority.rule, registry, only=_SCORING)
        args = _args_of(priority, policy, registry)
        yield msgspec.structs.replace(part, weight=priority.weight, args=args)
    for name, weight in own.items():
        yield msgspec.structs.replace(_profile_plugin(name, name, registry), weight=weight)
    scores = scored or any("score" in registry[name].points for name in own)
    if not scores and not policy.extenders:
        yield _profile_plugin(EQUAL_PRIORITY, EQUAL_PRIORITY, registry)


def _profile_plugin(
    name: str,
    rule: str,
    registry: Registry,
    *,
    only: Sequence[str] = (),
    without: Sequence[str] = (),
) -> _ProfilePlugin:
    entry = registry.get(rule)
    able = () if entry is None else entry.points
    points = tuple(p for p in able if (not only or p in only) and p not in without)
    return _ProfilePlugin(name, rule, points, args=None if entry is None else entry.args())


def _third_party_plugins(
    policy: Policy, registry: Registry, defaults: Sequence[PluginUse]
) -> dict[str, int]:
    """Out-of-tree plugins -> weight."""
    strange = {entry.name for entry in registry.third_party()}
    weights = {use.name: use.weight for use in defaults if use.name in strange}
    for predicate in policy.predicates:
        if predicate.rule in strange:
            weights.setdefault(predicate.rule, registry[predicate.rule].weight)
    for priority in policy.priorities:
        if priority.rule in strange:
            weights[priority.rule] = priority.weight
    return weights


def _args_of(rule: Predicate | PolicyPriority, policy: Policy, registry: Registry) -> Any:
    """Arguments of a plugin: its own, or the policy's and the gates' settings for all."""
    if rule.argument is not None:
        return _args(rule.argument, rule.rule, registry)
    given: dict[str, Any] = {}
    if rule.rule in _RESOURCES:
        given["ignored_resources"] = policy.ignored_resources()
    elif rule.rule in _ATTACHING:
        given["attach_volume_limit"] = policy.gates.attach_volume_limit
    elif rule.rule == _BALANCED:
        given["balance_attached_volumes"] = policy.gates.balance_attached_node_volumes
    elif rule.rule == _AFFINITY:
        given["hard_pod_affinity_weight"] = policy.hard_pod_affinity_weight
    return registry[rule.rule].args(**given) if rule.rule in registry else None


def _args(
    argument: PredicateArgument | PriorityArgument | None, rule: str, registry: Registry
) -> Any:
    """An argument of the policy as the arguments of its plugin, whose fields have the same
    names."""
    if argument is None or rule not in registry:
        return None
    (given,) = arguments_of(argument).values()
    return msgspec.convert(msgspec.to_builtins(given), registry[rule].args)
