"""Validation of scheduling fields: selectors, affinity, tolerations, taints, spreading, gates.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
)
from stowplan.apis.machinery.names import label_problems, label_value_problems, subdomain_problems
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_NEEDS_EXISTS = (
    'operator must be Exists when `key` is empty, which means "match all values and all keys"'
)


def affinity(given: Tree, path: str) -> Iterator[Cause]:
    """Node affinity, pod affinity and pod anti-affinity."""
    nodes = given.get("nodeAffinity")
    if nodes is not None:
        yield from _node_affinity(nodes, f"{path}.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        if kind in given:
            yield from _pod_affinity(given[kind], f"{path}.{kind}")


def _node_affinity(given: Tree, path: str) -> Iterator[Cause]:
    if _REQUIRED in given:
        yield from node_selector(given[_REQUIRED], f"{path}.{_REQUIRED}")
    for at, term in enumerate(given.get(_PREFERRED, ())):
        here = f"{path}.{_PREFERRED}[{at}]"
        yield from _weight(term["weight"], here)
        yield from node_selector_term(term["preference"], f"{here}.preference")


def _weight(value: int, path: str) -> Iterator[Cause]:
    if not 0 < value <= 100:
        yield invalid(f"{path}.weight", value, "must be in the range 1-100")


def node_selector(given: Tree, path: str) -> Iterator[Cause]:
    """A required node selector; its values are label values."""
    terms = given["nodeSelectorTerms"]
    if not terms:
        yield required(f"{path}.nodeSelectorTerms", "must have at least one node selector term")
        return
    for at, term in enumerate(terms):
        yield from node_selector_term(term, f"{path}.nodeSelectorTerms[{at}]", values_too=True)


def node_selector_term(term: Tree, path: str, values_too: bool = False) -> Iterator[Cause]:
    """One term of a node selector."""
    for at, one in enumerate(term.get("matchExpressions", ())):
        yield from _node_expression(one, f"{path}.matchExpressions[{at}]", values_too)
    for at, one in enumerate(term.get("matchFields", ())):
        yield from _node_field(one, f"{path}.matchFields[{at}]")


def _node_expression(one: Tree, path: str, values_too: bool) -> Iterator[Cause]:
    values = one.get("values", ())
    if one["operator"] not in ("Gt", "Lt"):
        yield from field_checks.operator_values(one, path)
    elif len(values) != 1:
        text = "must be specified single value when `operator` is 'Lt' or 'Gt'"
        yield required(f"{path}.values", text)
    yield from field_checks.label_name(one["key"], f"{path}.key")
    if values_too:
        yield from field_checks.label_values(values, f"{path}.values")


def _node_field(one: Tree, path: str) -> Iterator[Cause]:
    values = one.get("values", ())
    if one["operator"] in ("In", "NotIn"):
        if len(values) != 1:
            yield required(
                f"{path}.values",
                "must be only one value when `operator` is 'In' or 'NotIn' for node field selector",
            )
    else:
        yield invalid(f"{path}.operator", one["operator"], "not a valid selector operator")
    if one["key"] != "metadata.name":
        yield invalid(f"{path}.key", one["key"], "not a valid field selector key")
        return
    for at, value in enumerate(values):
        for text in subdomain_problems(value):
            yield invalid(f"{path}.values[{at}]", value, text)


def _pod_affinity(given: Tree, path: str) -> Iterator[Cause]:
    for at, term in enumerate(given.get(_REQUIRED, ())):
        yield from _pod_term(term, f"{path}.{_REQUIRED}[{at}]")
    for at, weighted in enumerate(given.get(_PREFERRED, ())):
        here = f"{path}.{_PREFERRED}[{at}]"
        yield from _weight(weighted["weight"], here)
        yield from _pod_term(weighted["podAffinityTerm"], f"{here}.podAffinityTerm")


def _pod_term(term: Tree, path: str) -> Iterator[Cause]:
    selector = term.get("labelSelector")
    yield from field_checks.selector(selector, f"{path}.labelSelector")
    yield from field_checks.selector(term.get("namespaceSelector"), f"{path}.namespaceSelector")
    for name in term.get("namespaces", ()):
        for text in label_problems(name):
            yield invalid(f"{path}.namespace", name, text)
    yield from _label_keys(term, selector, path)
    key = term["topologyKey"]
    if not key:
        yield required(f"{path}.topologyKey", "can not be empty")
    yield from field_checks.label_name(key, f"{path}.topologyKey")


def _label_keys(term: Tree, selector: Tree | None, path: str) -> Iterator[Cause]:
    """matchLabelKeys and mismatchLabelKeys are disjoint and not in the selector."""
    matching, other = term.get("matchLabelKeys", ()), term.get("mismatchLabelKeys", ())
    for name, keys in (("matchLabelKeys", matching), ("mismatchLabelKeys", other)):
        if keys and selector is None:
            yield forbidden_field(
                f"{path}.{name}", "must not be specified when labelSelector is not set"
            )
        elif keys:
            for at, key in enumerate(keys):
                yield from field_checks.label_name(key, f"{path}.{name}[{at}]")
    if selector is not None and matching:
        yield from _keys_twice(matching, selector, path)
    others = frozenset(other)
    for at, key in enumerate(matching):
        if key in others:
            yield invalid(
                f"{path}.matchLabelKeys[{at}]",
                key,
                "exists in both matchLabelKeys and mismatchLabelKeys",
            )


def _keys_twice(matching: list[str], selector: Tree, path: str) -> Iterator[Cause]:
    seen = set(selector.get("matchLabels", {}))
    places = {key: at for at, key in reversed(list(enumerate(matching)))}
    for one in selector.get("matchExpressions", ()):
        key = one["key"]
        if key in places and key in seen:
            yield invalid(
                f"{path}[{places[key]}]", key, "exists in both matchLabelKeys and labelSelector"
            )
        seen.add(key)


def tolerations(given: list[Tree], path: str) -> Iterator[Cause]:
    """The tolerations of a pod."""
    for at, one in enumerate(given):
        yield from _toleration(one, f"{path}[{at}]")


def _toleration(one: Tree, path: str) -> Iterator[Cause]:
    key, operator = one.get("key", ""), one.get("operator", "")
    effect, value = one.get("effect", ""), one.get("value", "")
    if key:
        yield from field_checks.label_name(key, f"{path}.key")
    elif operator != "Exists":
        yield invalid(f"{path}.operator", operator, _NEEDS_EXISTS)
    if "tolerationSeconds" in one and effect != "NoExecute":
        text = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        yield invalid(f"{path}.effect", effect, text)
    if operator in ("Equal", ""):
        problems = label_value_problems(value)
        if problems:
            yield invalid(f"{path}.operator", value, ";".join(problems))
    elif operator == "Exists":
        if value:
            text = "value must be empty when `operator` is 'Exists'"
            yield invalid(f"{path}.operator", value, text)
    elif operator in ("Lt", "Gt"):
        # The feature gate of the operators Lt and Gt is off in the original.
        yield not_supported(f"{path}.operator", operator, ["Equal", "Exists", "Lt", "Gt"])
    else:
        yield not_supported(f"{path}.operator", operator, ["Equal", "Exists"])
    if effect and effect not in EFFECTS:
        yield not_supported(f"{path}.effect", effect, EFFECTS)


def taints(given: list[Tree], path: str) -> Iterator[Cause]:
    """The taints of a node."""
    seen: set[tuple[str, str]] = set()
    for at, one in enumerate(given):
        here = f"{path}[{at}]"
        yield from field_checks.label_name(one["key"], f"{here}.key")
        problems = label_value_problems(one.get("value", ""))
        if problems:
            yield invalid(f"{here}.value", one["value"], ";".join(problems))
        yield from field_checks.supported_value(one["effect"], EFFECTS, f"{here}.effect")
        pair = (one["effect"], one["key"])
        if pair in seen:
            printed = {
                "Key": one["key"],
                "Value": one.get("value", ""),
                "Effect": one["effect"],
                "TimeAdded": one.get("timeAdded"),
            }
            cause = duplicate(here, printed)
            text = f"{cause.message}: taints must be unique by key and effect pair"
            yield Cause(cause.field, cause.reason, text)
        seen.add(pair)


def topology_spread_constraints(given: list[Tree], path: str) -> Iterator[Cause]:
    """Topology spread constraints."""
    last = {(one["topologyKey"], one["whenUnsatisfiable"]): at for at, one in enumerate(given)}
    for at, one in enumerate(given):
        here = f"{path}[{at}]"
        key, action = one["topologyKey"], one["whenUnsatisfiable"]
        yield from field_checks.positive(one["maxSkew"], f"{here}.maxSkew")
        if not key:
            yield required(f"{here}.topologyKey", "can not be empty")
        yield from field_checks.one_of(
            action, ("DoNotSchedule", "ScheduleAnyway"), f"{here}.whenUnsatisfiable"
        )
        if last[key, action] > at:
            yield duplicate(f"{here}.{{topologyKey, whenUnsatisfiable}}", f"{{{key}, {action}}}")
        yield from _topology_spread_options(one, action, here)


def _topology_spread_options(one: Tree, action: str, path: str) -> Iterator[Cause]:
    minimum = one.get("minDomains")
    if minimum is not None:
        yield from field_checks.positive(minimum, f"{path}.minDomains")
        if action != "DoNotSchedule":
            text = f"can only use minDomains if whenUnsatisfiable=DoNotSchedule, not {action}"
            yield invalid(f"{path}.minDomains", minimum, text)
    for name in ("nodeAffinityPolicy", "nodeTaintsPolicy"):
        if name in one and one[name] not in ("Honor", "Ignore"):
            yield not_supported(f"{path}.{name}", one[name], ["Honor", "Ignore"])
    selector = one.get("labelSelector")
    yield from _label_keys({"matchLabelKeys": one.get("matchLabelKeys", ())}, selector, path)
    yield from field_checks.selector(selector, f"{path}.labelSelector")


def scheduling_gates(given: list[Tree], path: str) -> Iterator[Cause]:
    """Scheduling gates."""
    seen: set[str] = set()
    for at, gate in enumerate(given):
        yield from field_checks.qualified_name(gate["name"], f"{path}[{at}]")
        yield from field_checks.unique(gate["name"], seen, f"{path}[{at}]")


def only_added_tolerations(new: list[Tree], old: list[Tree], path: str) -> Iterator[Cause]:
    """Tolerations may be added, and their tolerationSeconds may change."""
    bare = {_without_seconds(one) for one in new}
    if any(_without_seconds(one) not in bare for one in old):
        yield forbidden_field(
            path, "existing toleration can not be modified except its tolerationSeconds"
        )
        return
    yield from tolerations(new, path)


def _without_seconds(one: Tree) -> frozenset[tuple[str, str]]:
    return frozenset((key, value) for key, value in one.items() if key != "tolerationSeconds")


def only_removed_scheduling_gates(new: list[Tree], old: list[Tree], path: str) -> Iterator[Cause]:
    """Scheduling gates may only be removed."""
    known = {gate["name"] for gate in old}
    for at, gate in enumerate(new):
        if gate["name"] not in known:
            yield forbidden_field(
                f"{path}[{at}].name",
                f"only deletion is allowed, but found new scheduling gate '{gate['name']}'",
            )


def narrowed_node_selector(new: dict[str, str], old: dict[str, str], path: str) -> Iterator[Cause]:
    """A gated pod's node selector may only get more conditions."""
    if any(new.get(key) != value for key, value in old.items()):
        text = "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        yield invalid(path, new or None, text)


def narrowed_node_affinity(new: Tree | None, old: Tree | None, path: str) -> Iterator[Cause]:
    """A gated pod's required node affinity may only get more conditions."""
    if old is None or _REQUIRED not in old:
        return
    old_terms = old[_REQUIRED]["nodeSelectorTerms"] or []
    new_terms = ((new or {}).get(_REQUIRED) or {}).get("nodeSelectorTerms") or []
    here = f"{path}.{_REQUIRED}.nodeSelectorTerms"
    if old_terms and len(old_terms) != len(new_terms):
        text = "no additions/deletions to non-empty NodeSelectorTerms list are allowed"
        yield invalid(here, [_printed_term(term) for term in new_terms] or None, text)
        return
    for at, term in enumerate(old_terms):
        if not _only_more(new_terms[at], term):
            text = "only additions are allowed (no mutations or deletions)"
            yield invalid(f"{here}[{at}]", _printed_term(new_terms[at]), text)


def _only_more(new: Tree, old: Tree) -> bool:
    if not old.get("matchExpressions") and not old.get("matchFields"):
        return not new.get("matchExpressions") and not new.get("matchFields")
    return all(
        new.get(name, [])[: len(old.get(name, []))] == old.get(name, [])
        for name in ("matchExpressions", "matchFields")
    )


def _printed_term(term: Tree) -> Tree:
    def printed(name: str) -> list[Tree] | None:
        return [
            {"Key": one["key"], "Operator": one["operator"], "Values": one.get("values")}
            for one in term.get(name, ())
        ] or None

    return {"MatchExpressions": printed("matchExpressions"), "MatchFields": printed("matchFields")}
