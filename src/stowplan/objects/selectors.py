"""Label selectors and node selectors: what they match and what is wrong with a malformed one.

A requirement is evaluated for one value of its key, or for its absence; a selector is an AND of
requirements, a node selector an OR of terms. A selector is validated once per object, and the
result is stored with it.

Effects of an invalid selector:

- A label selector with a fault raises SelectorError, whatever the labels are.
- A node selector term with a fault never matches. Required node affinity ignores the fault
  itself (NodeAffinity's Filter, topology spread), so the other terms may still match; a queueing
  hint that meets it lets the pod through; the volume rules report it if no term matches.
- A fault in preferred node affinity ends the attempt: PreScore answers with the text of
  `preferred_terms_error`. Node affinity in the scheduler's configuration is refused at the start.

Source: Kubernetes v1.36: apimachinery pkg/labels/selector.go, pkg/fields/selector.go and
pkg/apis/meta/v1/helpers.go, component-helpers scheduling/corev1/nodeaffinity.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property, lru_cache

from msgspec import field

from stowplan.objects.meta import Value
from stowplan.objects.quantity import INT64_MAX, INT64_MIN

NODE_NAME_FIELD = "metadata.name"

_NAME = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_DOMAIN_LABEL = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_DOMAIN = rf"{_DOMAIN_LABEL}(\.{_DOMAIN_LABEL})*"
_INTEGER = re.compile(r"[+-]?[0-9]+")
_is_name = re.compile(_NAME).fullmatch
_is_domain = re.compile(_DOMAIN).fullmatch

_CHARACTERS = (
    "consist of alphanumeric characters, '-', '_' or '.', "
    "and must start and end with an alphanumeric character"
)
_BAD_NAME = (
    f"must {_CHARACTERS} (e.g. 'MyName',  or 'my.name',  or '123-abc', "
    f"regex used for validation is '{_NAME}')"
)
_BAD_VALUE = (
    f"a valid label must be an empty string or {_CHARACTERS} "
    f"(e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '({_NAME})?')"
)
_BAD_DOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
    "'-' or '.', and must start and end with an alphanumeric character "
    f"(e.g. 'example.com', regex used for validation is '{_DOMAIN}')"
)
_NOT_AN_INTEGER = "for 'Gt', 'Lt' operators, the value must be an integer"


class SelectorError(ValueError):
    """A label selector that the API would refuse, with the original's message."""


class SelectorRequirement(Value, frozen=True):
    """One condition on one key."""

    key: str = ""
    operator: str = ""
    values: tuple[str, ...] = ()


class LabelSelectorRequirement(SelectorRequirement, frozen=True):
    """An entry of a label selector's `matchExpressions`: In, NotIn, Exists or DoesNotExist."""


class NodeSelectorRequirement(SelectorRequirement, frozen=True):
    """An entry of a node selector term: as for labels, and Gt and Lt on integers."""


class LabelSelector(Value, frozen=True, dict=True, gc=True):
    """`matchLabels` and `matchExpressions`, all of which must hold."""

    match_labels: dict[str, str] = field(default_factory=dict)
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()

    @cached_property
    def requirements(self) -> tuple[LabelSelectorRequirement, ...]:
        """All conditions, with `matchLabels` as In with one value; raises SelectorError."""
        stated = [
            *(LabelSelectorRequirement(k, "In", (v,)) for k, v in self.match_labels.items()),
            *self.match_expressions,
        ]
        for requirement in stated:
            if _names_values(requirement):
                continue
            if requirement.operator not in _LABEL_OPERATORS:
                value = _quoted(requirement.operator)
                raise SelectorError(f"{value} is not a valid label selector operator")
            faults = _requirement_faults(requirement)
            if faults:
                raise SelectorError(_aggregate(faults))
        return tuple(stated)


class NodeSelectorTerm(Value, frozen=True, dict=True, gc=True):
    """Conditions on a node's labels and fields, all of which must hold."""

    match_expressions: tuple[NodeSelectorRequirement, ...] = ()
    match_fields: tuple[NodeSelectorRequirement, ...] = ()

    @property
    def is_empty(self) -> bool:
        """True for a term without conditions: it matches nothing."""
        return not self.match_expressions and not self.match_fields

    @cached_property
    def faults(self) -> tuple[str, ...]:
        """Errors of the term, each with the path in it."""
        if not self.match_fields and all(map(_names_values, self.match_expressions)):
            return ()
        faults: list[str] = []
        for i, r in enumerate(self.match_expressions):
            faults += _within(f"matchExpressions[{i}].", _expression_faults(r))
        for i, r in enumerate(self.match_fields):
            faults += _within(f"matchFields[{i}].", _field_faults(r))
        return tuple(faults)


class NodeSelector(Value, frozen=True):
    """Terms of which one must hold; without a valid term it matches no node."""

    node_selector_terms: tuple[NodeSelectorTerm, ...] = ()


class PreferredSchedulingTerm(Value, frozen=True):
    """A node selector term and its weight."""

    weight: int = 0
    preference: NodeSelectorTerm = NodeSelectorTerm()


_OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
_LABEL_OPERATORS = _OPERATORS[:4]
_FIELD_OPERATORS = _SET_OPERATORS = _OPERATORS[:2]


def requirement_admits(requirement: SelectorRequirement, value: str | None) -> bool:
    """True when the requirement holds for this value of its key; None: the key is absent.

    The requirement must be valid; False for an unknown operator.
    """
    operator = requirement.operator
    if operator == "In":
        return value in requirement.values
    if operator == "NotIn":
        return value not in requirement.values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    have = None if value is None else _int64(value)
    want = _int64(requirement.values[0]) if len(requirement.values) == 1 else None
    if have is None or want is None:
        return False
    return have > want if operator == "Gt" else operator == "Lt" and have < want


def label_selector_matches(selector: LabelSelector | None, labels: Mapping[str, str]) -> bool:
    """True when all conditions hold; None matches nothing, an empty selector everything.

    Raises SelectorError for an invalid selector, whatever the labels are.
    """
    if selector is None:
        return False
    return all(requirement_admits(r, labels.get(r.key)) for r in selector.requirements)


def term_matches(term: NodeSelectorTerm, labels: Mapping[str, str], node_name: str) -> bool:
    """True when all conditions of a node selector term hold; False for an empty or invalid term.

    The only field is `metadata.name`; others are read as "". Conditions on fields do not count for
    a node without a name.
    """
    if term.is_empty or term.faults:
        return False
    return all(requirement_admits(r, labels.get(r.key)) for r in term.match_expressions) and (
        not node_name
        or all(
            requirement_admits(r, node_name if r.key == NODE_NAME_FIELD else "")
            for r in term.match_fields
        )
    )


def node_selector_matches(
    selector: NodeSelector, labels: Mapping[str, str], node_name: str
) -> bool:
    """True when at least one term matches the node."""
    return any(term_matches(term, labels, node_name) for term in selector.node_selector_terms)


def term_errors(term: NodeSelectorTerm, path: str = "") -> tuple[str, ...]:
    """The original's errors of a term; empty when it is valid.

    path: location of the term, such as `[2]` for the third preferred term of a pod.
    """
    return tuple(_within(f"{path}." if path else "", term.faults))


def node_selector_error(selector: NodeSelector, path: str = "") -> str | None:
    """The original's error of all invalid terms, or None.

    Refuses a configured node selector, and is the error of a lookup without a matching term.
    """
    prefix = f"{path}.nodeSelectorTerms" if path else "nodeSelectorTerms"
    errors: list[str] = []
    for i, term in enumerate(selector.node_selector_terms):
        errors += term_errors(term, f"{prefix}[{i}]")
    return _aggregate(errors) if errors else None


def preferred_terms_error(terms: Iterable[PreferredSchedulingTerm], path: str = "") -> str | None:
    """The original's error of invalid preferred terms, or None.

    Terms of weight 0 are ignored.
    """
    errors: list[str] = []
    for i, term in enumerate(terms):
        if term.weight != 0:
            errors += term_errors(term.preference, f"{path}[{i}]")
    return _aggregate(errors) if errors else None


@lru_cache(maxsize=1 << 12)
def label_key_errors(key: str) -> tuple[str, ...]:
    """Why `key` is not a label key (a qualified name), in the original's words."""
    prefix, slash, name = key.rpartition("/")
    if "/" in prefix:
        return (
            f"a valid label key {_BAD_NAME} "
            "with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
        )
    errors: list[str] = []
    if slash and not prefix:
        errors.append("prefix part must be non-empty")
    elif slash:
        if len(prefix.encode()) > 253:
            errors.append("prefix part must be no more than 253 bytes")
        if not _is_domain(prefix):
            errors.append(f"prefix part {_BAD_DOMAIN}")
    if not name:
        errors.append("name part must be non-empty")
    elif len(name.encode()) > 63:
        errors.append("name part must be no more than 63 bytes")
    if not _is_name(name):
        errors.append(f"name part {_BAD_NAME}")
    return tuple(errors)


@lru_cache(maxsize=1 << 12)
def label_value_errors(value: str) -> tuple[str, ...]:
    """Why `value` is not a label value, in the original's words."""
    is_name = not value or _is_name(value)
    # The characters of a name take a byte each.
    if is_name and len(value) <= 63:
        return ()
    errors = []
    if len(value.encode()) > 63:
        errors.append("must be no more than 63 bytes")
    if not is_name:
        errors.append(_BAD_VALUE)
    return tuple(errors)


def _names_values(r: SelectorRequirement) -> bool:
    """True for a valid condition that names values, as nearly all do: thousands of volumes and
    capacities have one each."""
    if r.operator not in _SET_OPERATORS or not r.values or label_key_errors(r.key):
        return False
    return not any(map(label_value_errors, r.values))


def _requirement_faults(r: SelectorRequirement) -> list[str]:
    """Errors of a condition on a label; its operator must be known."""
    if _names_values(r):
        return []
    faults = []
    key_errors = label_key_errors(r.key)
    if key_errors:
        faults.append(_invalid("key", _quoted(r.key), "; ".join(key_errors)))
    count = _count_fault(r)
    if count:
        faults.append(_invalid("values", _as_json(r.values), count))
    if r.operator in ("Gt", "Lt"):
        faults += [
            _invalid(f"values[{i}]", _quoted(v), _NOT_AN_INTEGER)
            for i, v in enumerate(r.values)
            if _int64(v) is None
        ]
    faults += [
        _invalid(f"values[{i}][{r.key}]", _quoted(v), "; ".join(label_value_errors(v)))
        for i, v in enumerate(r.values)
        if label_value_errors(v)
    ]
    return faults


def _count_fault(r: SelectorRequirement) -> str:
    """The error about the number of values, empty when it is right."""
    if r.operator in ("In", "NotIn"):
        return "" if r.values else "for 'in', 'notin' operators, values set can't be empty"
    if r.operator in ("Exists", "DoesNotExist"):
        return "values set must be empty for exists and does not exist" if r.values else ""
    return "" if len(r.values) == 1 else "for 'Gt', 'Lt' operators, exactly one value is required"


def _expression_faults(r: NodeSelectorRequirement) -> list[str]:
    return _requirement_faults(r) if r.operator in _OPERATORS else [_unsupported(r, _OPERATORS)]


def _field_faults(r: NodeSelectorRequirement) -> list[str]:
    if r.operator not in _FIELD_OPERATORS:
        return [_unsupported(r, _FIELD_OPERATORS)]
    if len(r.values) != 1:
        return [_invalid("values", _as_json(r.values), "must have one element")]
    return []


def _unsupported(r: SelectorRequirement, operators: Iterable[str]) -> str:
    supported = ", ".join(f'"{operator}"' for operator in operators)
    got = _json(r.operator)
    return f"operator: Unsupported value: {got}: supported values: {supported}"


def _invalid(path: str, value: str, why: str) -> str:
    return f"{path}: Invalid value: {value}: {why}"


def _within(prefix: str, faults: Iterable[str]) -> list[str]:
    return [prefix + fault for fault in faults]


def _aggregate(errors: Sequence[str]) -> str:
    """One message from several errors; more than one is put in brackets."""
    return errors[0] if len(errors) == 1 else f"[{', '.join(errors)}]"


def _int64(text: str) -> int | None:
    """`text` as a decimal int64, or None."""
    if len(text) > 4000 or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if INT64_MIN <= number <= INT64_MAX else None


def _as_json(values: tuple[str, ...]) -> str:
    # An empty list and an absent one are the same here; the API stores both as absent.
    return _json(values) if values else "null"


def _json(value: object) -> str:
    """Compact JSON with the escapes of the original's encoder."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


_ESCAPES = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_ESCAPES |= {"\v": "\\v", "\\": "\\\\", '"': '\\"'}


def _quoted(text: str) -> str:
    """`text` in double quotes, escaped as in the original."""
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(character: str) -> str:
    if character in _ESCAPES:
        return _ESCAPES[character]
    if character.isprintable():
        return character
    code = ord(character)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
