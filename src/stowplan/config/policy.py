"""Policy files (kind: Policy, apiVersion: v1): from their tree to a Configuration.

Names are registered as the original registers them: in the order of the lists, an argument
replacing what had the name before, a later entry without one keeping it.

Differs: unknown fields are mistakes, the original ignores them; a predicate or priority may also be
the name of an out-of-tree plugin.

Source: Kubernetes v1.13, scheduler/factory (plugins.go, factory.go CreateFromConfig) and
scheduler/api/validation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stowplan.config.kube_scheduler import check_extenders
from stowplan.config.model import Configuration, Extender
from stowplan.config.policy_document import (
    ExtenderConfig,
    PolicyDocument,
    PredicateArgument,
    PredicatePolicy,
    PriorityArgument,
    PriorityPolicy,
    arguments_of,
    with_known_cases,
)
from stowplan.config.policy_names import (
    DEFAULT_PROVIDER,
    PREDICATE_ORDER,
    PolicyGates,
    gate_behind,
    known_predicates,
    known_priorities,
    mandatory_predicates,
    provided_predicates,
    provided_priorities,
)
from stowplan.config.policy_profile import Policy, PolicyPriority, Predicate, profile_of
from stowplan.config.strict_decoder import (
    INVALID,
    Problems,
    decode,
    format_alternatives,
    format_value,
)
from stowplan.framework.problems import did_you_mean
from stowplan.framework.profile import PluginUse
from stowplan.framework.runtime.registry import Registry
from stowplan.objects.pod import DEFAULT_SCHEDULER

KIND = "Policy"
API_VERSION = "v1"

MAX_TOTAL = 2**63 - 1
PRIORITY_MAX = 10
HARD_WEIGHT_MAX = 100

_NAME = re.compile(r"[a-zA-Z0-9]([-a-zA-Z0-9]*[a-zA-Z0-9])")
_NAME_WANTED = "letters, digits and dashes between them, at least two characters"

_RULES = {
    "serviceAffinity": "CheckServiceAffinity",
    "labelsPresence": "CheckNodeLabelPresence",
    "serviceAntiAffinity": "ServiceAntiAffinityPriority",
    "labelPreference": "NodeLabelPriority",
    "requestedToCapacityRatioArguments": "RequestedToCapacityRatioPriority",
}
"""Kind of argument -> the plugin that takes it."""


def read(
    tree: dict[str, Any],
    source: str,
    registry: Registry,
    defaults: Sequence[PluginUse],
    problems: Problems,
    *,
    gates: PolicyGates | None = None,
    provider: str = DEFAULT_PROVIDER,
) -> Configuration:
    """Read the configuration of a document's body; raises ConfigError with every mistake.

    gates: those of 1.13, default if absent. provider: its lists replace absent ones.
    """
    written = decode(with_known_cases(tree), PolicyDocument, "", problems)
    if written is INVALID:
        raise problems.error(source)
    reading = _PolicyReader(registry, gates or PolicyGates(), problems)
    extenders = reading.extenders(written.extenders)
    policy = Policy(
        predicates=reading.predicates(written.predicates),
        priorities=reading.priorities(written.priorities, provider),
        hard_pod_affinity_weight=reading.hard_weight(written.hard_pod_affinity_symmetric_weight),
        checks_all_filters=written.always_check_all_predicates,
        extenders=extenders,
        gates=reading.gates,
    )
    if problems.found:
        raise problems.error(source)
    policy = _with_third_party_plugins(policy, registry, defaults)
    profile = profile_of(policy, registry, defaults, problems)
    if problems.found:
        raise problems.error(source)
    return Configuration(
        source=source, profiles={DEFAULT_SCHEDULER: profile}, extenders=extenders, policy=policy
    )


def read_document(
    tree: dict[str, Any],
    source: str,
    registry: Registry,
    *,
    gates: PolicyGates,
    provider: str = DEFAULT_PROVIDER,
) -> Configuration:
    """Same for a whole document with apiVersion and kind, without current defaults."""
    problems = Problems()
    for key, wanted in (("kind", KIND), ("apiVersion", API_VERSION)):
        if tree.get(key) != wanted:
            problems.add(key, format_value(tree[key]) if key in tree else "", repr(wanted))
    body = {key: value for key, value in tree.items() if key not in ("kind", "apiVersion")}
    return read(body, source, registry, (), problems, gates=gates, provider=provider)


def _with_third_party_plugins(
    policy: Policy, registry: Registry, defaults: Sequence[PluginUse]
) -> Policy:
    """The policy with out-of-tree filter and score plugins, which run without being listed."""
    predicates = {one.name: one for one in policy.predicates}
    priorities = {one.name: one for one in policy.priorities}
    for name, weight in ((use.name, use.weight) for use in defaults):
        entry = registry.get(name)
        if entry is None or entry.in_tree:
            continue
        if "filter" in entry.points:
            predicates.setdefault(name, Predicate(name, name))
        if "score" in entry.points:
            priorities.setdefault(name, PolicyPriority(name, weight, name))
    return msgspec.structs.replace(
        policy,
        predicates=tuple(predicates.values()),
        priorities=tuple(priorities[name] for name in sorted(priorities)),
    )


class _PolicyReader:
    """Reads one document; adds problems."""

    def __init__(self, registry: Registry, gates: PolicyGates, problems: Problems) -> None:
        self.registry = registry
        self.gates = gates
        self.problems = problems

    def predicates(self, written: Sequence[PredicatePolicy] | None) -> tuple[Predicate, ...]:
        """The predicates in call order, then those that never run."""
        known = {name: Predicate(name, name) for name in known_predicates(self.gates)}
        named: list[str] = list(provided_predicates(self.gates)) if written is None else []
        for i, entry in enumerate(written or ()):
            path = f"predicates[{i}]"
            if self.problems.is_invalid(path):
                continue
            if entry.argument is not None:
                rule = self._rule(entry.name, entry.argument, path)
                if rule:
                    known[entry.name] = Predicate(entry.name, rule, entry.argument)
                    named.append(entry.name)
            elif self._is_known(entry.name, known, "filter", path):
                known.setdefault(entry.name, Predicate(entry.name, entry.name))
                named.append(entry.name)
        chosen = {*named, *mandatory_predicates(self.gates)}
        last = len(PREDICATE_ORDER)
        place = {name: place for place, name in enumerate(PREDICATE_ORDER)}
        ordered = sorted(chosen, key=lambda name: (place.get(name, last), name))
        return tuple(known[name] for name in ordered)

    def priorities(
        self, written: Sequence[PriorityPolicy] | None, provider: str
    ) -> tuple[PolicyPriority, ...]:
        """The priorities by name."""
        known = {name: PolicyPriority(name, 1, name) for name in known_priorities(self.gates)}
        chosen: dict[str, PolicyPriority] = {}
        if written is None:
            weights = provided_priorities(self.gates, provider)
            chosen = {name: PolicyPriority(name, weight, name) for name, weight in weights.items()}
        # Where each shape is written; a shape that is replaced later is not checked.
        shapes: dict[str, str] = {}
        for i, entry in enumerate(written or ()):
            path = f"priorities[{i}]"
            if self.problems.is_invalid(path):
                continue
            self._check_weight(entry, path)
            if entry.argument is not None:
                rule = self._rule(entry.name, entry.argument, path)
                if not rule:
                    continue
                found = PolicyPriority(entry.name, entry.weight, rule, entry.argument)
                shapes[entry.name] = f"{path}.argument.requestedToCapacityRatioArguments"
            elif self._is_known(entry.name, known, "score", path):
                before = known.get(entry.name, PolicyPriority(entry.name, 1, entry.name))
                found = msgspec.structs.replace(before, weight=entry.weight)
            else:
                continue
            known[entry.name] = chosen[entry.name] = found
        self._check_sum(chosen)
        for name, priority in chosen.items():
            args = priority.args_in(self.registry)
            if name in shapes and hasattr(args, "problems"):
                self.problems.extend(args.problems(shapes[name]))
        return tuple(chosen[name] for name in sorted(chosen))

    def extenders(self, written: Sequence[ExtenderConfig]) -> tuple[Extender, ...]:
        """The extenders, as in the configuration model."""
        found = tuple(extender.extender() for extender in written)
        for i, extender in enumerate(found):
            self.problems.extend(extender.problems(f"extenders[{i}]"))
            nanoseconds = written[i].http_timeout
            if nanoseconds < 0:
                # Differs: a negative timeout is a mistake; the original waits without limit.
                wanted = "a number of nanoseconds, 0 for the default"
                self.problems.add(f"extenders[{i}].httpTimeout", str(nanoseconds), wanted)
        check_extenders(found, self.problems)
        return found

    def hard_weight(self, written: int) -> int:
        """Weight of a required affinity term of a placed pod; 0 is the same as absent."""
        if written != 0 and not 1 <= written <= HARD_WEIGHT_MAX:
            wanted = f"1 to {HARD_WEIGHT_MAX}"
            self.problems.add("hardPodAffinitySymmetricWeight", str(written), wanted)
        return written or 1

    def _rule(self, name: str, argument: PredicateArgument | PriorityArgument, path: str) -> str:
        """The plugin of an argument; "", with a problem, where it has none."""
        given = arguments_of(argument)
        if len(given) != 1:
            kinds = [field.encode_name for field in msgspec.structs.fields(type(argument))]
            got = " and ".join(given) or "nothing"
            self.problems.add(
                f"{path}.argument", got, f"exactly one of {format_alternatives(kinds)}"
            )
            return ""
        if not _NAME.fullmatch(name):
            self.problems.add(f"{path}.name", format_value(name), _NAME_WANTED)
            return ""
        return _RULES[next(iter(given))]

    def _is_known(self, name: str, known: Mapping[str, Any], point: str, path: str) -> bool:
        """True for a name that needs no argument; otherwise adds a problem."""
        entry = self.registry.get(name)
        if name in known or (entry is not None and not entry.in_tree and point in entry.points):
            return True
        names = [
            *known,
            *(e.name for e in self.registry.third_party() if point in e.points),
        ]
        why = gate_behind(name, self.gates)
        got = format_value(name) if name else ""
        hint = why or did_you_mean(name, names)
        self.problems.add(f"{path}.name", got, ", ".join(names), hint)
        return False

    def _check_weight(self, entry: PriorityPolicy, path: str) -> None:
        most = MAX_TOTAL // PRIORITY_MAX
        if not 0 < entry.weight < most:
            wanted = f"a whole number above 0 and below {most}"
            self.problems.add(f"{path}.weight", str(entry.weight), wanted)

    def _check_sum(self, chosen: Mapping[str, PolicyPriority]) -> None:
        total = sum(priority.weight for priority in chosen.values()) * PRIORITY_MAX
        if total > MAX_TOTAL and not self.problems.is_invalid("priorities"):
            wanted = f"at most {MAX_TOTAL // PRIORITY_MAX} in sum"
            self.problems.add("priorities", f"weights of {total // PRIORITY_MAX}", wanted)
