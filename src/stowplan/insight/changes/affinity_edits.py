"""Edits of a pod's node selector, node affinity and pod affinity."""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from stowplan.cycle.change import Operation
from stowplan.insight.changes import edits
from stowplan.insight.changes.edits import PodEdit, pointer
from stowplan.objects.pod import Affinity, PodSpec
from stowplan.objects.selectors import NodeSelectorRequirement, NodeSelectorTerm

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_NODE_TERMS = ("affinity", "nodeAffinity", REQUIRED, "nodeSelectorTerms")
_POD_FIELDS = {"pod_affinity": "podAffinity", "pod_anti_affinity": "podAntiAffinity"}


def required_terms(spec: PodSpec) -> tuple[NodeSelectorTerm, ...] | None:
    """The terms of required node affinity; None without it."""
    affinity = spec.affinity
    node_affinity = None if affinity is None else affinity.node_affinity
    if node_affinity is None or node_affinity.required is None:
        return None
    return node_affinity.required.node_selector_terms


def requirement_text(requirement: NodeSelectorRequirement) -> str:
    """A requirement as `key In [a, b]`."""
    values = f" [{', '.join(requirement.values)}]" if requirement.values else ""
    return f"{requirement.key} {requirement.operator}{values}"


def drop_selector(key: str, value: str) -> PodEdit:
    """One entry less in `nodeSelector`."""
    text = f"drop {key}={value} of nodeSelector"
    return PodEdit("affinity", edits.DROP_TERM, text, partial(_without_selector, key))


def _without_selector(key: str, spec: PodSpec) -> tuple[PodSpec, list[Operation]]:
    left = {k: v for k, v in (spec.node_selector or {}).items() if k != key}
    operation = {"op": "remove", "path": pointer("nodeSelector", key)}
    return replace(spec, node_selector=left or None), [operation]


def add_value(spec: PodSpec, term: int, expression: int, value: str) -> PodEdit:
    """One value more in an `In` requirement of node affinity."""
    requirement = (required_terms(spec) or ())[term].match_expressions[expression]
    text = f"add {value} to the node affinity {requirement_text(requirement)}"
    change = partial(_with_value, term, expression, value)
    target = REQUIRED, term, expression
    return PodEdit("affinity", edits.ADD_VALUE, text, change, expression, target)


def _with_value(
    term: int, expression: int, value: str, spec: PodSpec
) -> tuple[PodSpec, list[Operation]]:
    terms = required_terms(spec) or ()
    expressions = list(terms[term].match_expressions)
    requirement = expressions[expression]
    expressions[expression] = replace(requirement, values=(*requirement.values, value))
    path = pointer(*_NODE_TERMS, term, "matchExpressions", expression, "values", "-")
    changed = _with_expressions(spec, term, tuple(expressions))
    return changed, [{"op": "add", "path": path, "value": value}]


def drop_expression(spec: PodSpec, term: int, expression: int) -> PodEdit | None:
    """One requirement less in a term; None when it is the term's only one: an empty term matches
    no node."""
    found = (required_terms(spec) or ())[term]
    if len(found.match_expressions) + len(found.match_fields) < 2:
        return None
    text = f"drop the node affinity {requirement_text(found.match_expressions[expression])}"
    change = partial(_without_expression, term, expression)
    target = REQUIRED, term, expression
    return PodEdit("affinity", edits.DROP_TERM, text, change, expression, target)


def _without_expression(
    term: int, expression: int, spec: PodSpec
) -> tuple[PodSpec, list[Operation]]:
    terms = required_terms(spec) or ()
    kept = terms[term].match_expressions
    path = pointer(*_NODE_TERMS, term, "matchExpressions", expression)
    changed = _with_expressions(spec, term, kept[:expression] + kept[expression + 1 :])
    return changed, [{"op": "remove", "path": path}]


def _with_expressions(
    spec: PodSpec, term: int, expressions: tuple[NodeSelectorRequirement, ...]
) -> PodSpec:
    affinity = spec.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    required = affinity.node_affinity.required
    assert required is not None
    terms = list(required.node_selector_terms)
    terms[term] = replace(terms[term], match_expressions=expressions)
    changed = replace(required, node_selector_terms=tuple(terms))
    node_affinity = replace(affinity.node_affinity, required=changed)
    return replace(spec, affinity=replace(affinity, node_affinity=node_affinity))


def drop_required() -> PodEdit:
    """No required node affinity."""
    text = "drop the required node affinity"
    return PodEdit("affinity", edits.DROP_REQUIRED, text, _without_required, target=(REQUIRED,))


def _without_required(spec: PodSpec) -> tuple[PodSpec, list[Operation]]:
    affinity = spec.affinity
    assert affinity is not None
    assert affinity.node_affinity is not None
    node_affinity = replace(affinity.node_affinity, required=None)
    path = pointer("affinity", "nodeAffinity", REQUIRED)
    changed = replace(spec, affinity=replace(affinity, node_affinity=node_affinity))
    return changed, [{"op": "remove", "path": path}]


def pod_term_edits(spec: PodSpec) -> list[PodEdit]:
    """One edit per required term of pod affinity and anti-affinity: without that term."""
    found: list[PodEdit] = []
    affinity = spec.affinity or Affinity()
    for field, name in _POD_FIELDS.items():
        own = getattr(affinity, field)
        for index, term in enumerate(own.required if own is not None else ()):
            words = "pod affinity" if field == "pod_affinity" else "pod anti-affinity"
            text = f"drop required {words} term {index + 1} (topology {term.topology_key})"
            change = partial(_without_pod_term, field, name, index)
            found.append(PodEdit("affinity", edits.DROP_TERM, text, change, position=index))
    return found


def _without_pod_term(
    field: str, name: str, index: int, spec: PodSpec
) -> tuple[PodSpec, list[Operation]]:
    affinity = spec.affinity or Affinity()
    own = getattr(affinity, field)
    left = replace(own, required=own.required[:index] + own.required[index + 1 :])
    changed = replace(spec, affinity=replace(affinity, **{field: left}))
    return changed, [{"op": "remove", "path": pointer("affinity", name, REQUIRED, index)}]
