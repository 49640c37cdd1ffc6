"""Label and node selectors: every operator, what an absent key means, and the original's errors.

Source: kube-scheduler v1.36: apimachinery pkg/labels, component-helpers nodeaffinity.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from stowplan.objects import selectors
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.selectors import (
    LabelSelector,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    PreferredSchedulingTerm,
    SelectorError,
    label_key_errors,
    label_selector_matches,
    label_value_errors,
    node_selector_error,
    node_selector_matches,
    preferred_terms_error,
    requirement_admits,
    term_errors,
    term_matches,
)

BAD_NAME = (
    "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
    "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
BAD_VALUE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  "
    "or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
BAD_DOMAIN = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    "for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)


def label_selector(**fields: Any) -> LabelSelector:
    return convert(fields, LabelSelector)


def rule(operator: str, *values: str, key: str = "disk") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def term(*expressions: dict[str, Any], fields: tuple[dict[str, Any], ...] = ()) -> NodeSelectorTerm:
    tree = {"matchExpressions": list(expressions), "matchFields": list(fields)}
    return convert(tree, NodeSelectorTerm)


ADMITS = [
    # operator, values, admitted, not admitted; None: the key is absent
    ("In", ["ssd", "nvme"], ["ssd", "nvme"], ["hdd", "", None]),
    ("In", [""], [""], ["ssd", None]),
    ("NotIn", ["ssd", "nvme"], ["hdd", "", None], ["ssd", "nvme"]),
    ("Exists", [], ["ssd", ""], [None]),
    ("DoesNotExist", [], [None], ["ssd", ""]),
    ("Gt", ["8"], ["9", "09", "+10", "9223372036854775807"], ["8", "-9", "x", "", "8.5", None]),
    ("Lt", ["8"], ["7", "-7", "007", "-9223372036854775808"], ["8", "x", "", "1_0", None]),
    # out of int64: not a number
    ("Gt", ["8"], [], ["9223372036854775808", "9" * 5000]),
    ("Lt", ["8"], [], ["-9223372036854775809"]),
    ("Between", ["1"], [], ["1", "", None]),
]


@pytest.mark.parametrize(("operator", "values", "yes", "no"), ADMITS)
def test_requirement_admits(
    operator: str, values: list[str], yes: list[str | None], no: list[str | None]
) -> None:
    requirement = NodeSelectorRequirement("disk", operator, tuple(values))
    assert [v for v in [*yes, *no] if requirement_admits(requirement, v)] == yes


LABELS = {"app": "web", "tier": "front"}
MATCHES = [
    ({}, True),
    ({"matchLabels": {"app": "web"}}, True),
    ({"matchLabels": {"app": "web", "tier": "back"}}, False),
    ({"matchLabels": {"zone": ""}}, False),
    ({"matchExpressions": [rule("In", "web", "api", key="app")]}, True),
    ({"matchExpressions": [rule("NotIn", "web", key="app")]}, False),
    ({"matchExpressions": [rule("NotIn", "a", key="zone")]}, True),
    ({"matchExpressions": [rule("Exists", key="app"), rule("DoesNotExist", key="zone")]}, True),
    ({"matchLabels": {"app": "web"}, "matchExpressions": [rule("Exists", key="zone")]}, False),
]


@pytest.mark.parametrize(("fields", "matches"), MATCHES)
def test_label_selector(fields: dict[str, Any], matches: bool) -> None:
    assert label_selector_matches(label_selector(**fields), LABELS) is matches


def test_no_label_selector_matches_nothing() -> None:
    assert not label_selector_matches(None, LABELS)
    assert label_selector_matches(LabelSelector(), {})


def test_requirements_are_kept_with_the_selector() -> None:
    selector = label_selector(matchLabels={"a": "1"}, matchExpressions=[rule("Exists", key="b")])
    assert [(r.key, r.operator, r.values) for r in selector.requirements] == [
        ("a", "In", ("1",)),
        ("b", "Exists", ()),
    ]
    assert selector.requirements is selector.requirements


LABEL_FAULTS = [
    ({"matchExpressions": [rule("Gt", "1")]}, '"Gt" is not a valid label selector operator'),
    ({"matchExpressions": [rule('a"\n', "1")]}, r'"a\"\n" is not a valid label selector operator'),
    (
        {"matchExpressions": [rule("In")]},
        "values: Invalid value: null: for 'in', 'notin' operators, values set can't be empty",
    ),
    (
        {"matchExpressions": [rule("Exists", "ssd", "<x>")]},
        r'[values: Invalid value: ["ssd","\u003cx\u003e"]: values set must be empty for exists and '
        f'does not exist, values[1][disk]: Invalid value: "<x>": {BAD_VALUE}]',
    ),
    ({"matchLabels": {"app": "-web"}}, f'values[0][app]: Invalid value: "-web": {BAD_VALUE}'),
    (
        {"matchLabels": {"a b": "x" * 64}},
        f'[key: Invalid value: "a b": name part {BAD_NAME}, '
        f'values[0][a b]: Invalid value: "{"x" * 64}": must be no more than 63 bytes]',
    ),
]


@pytest.mark.parametrize(("fields", "text"), LABEL_FAULTS)
def test_a_malformed_label_selector_raises_for_any_labels(
    fields: dict[str, Any], text: str
) -> None:
    selector = label_selector(**fields)
    for labels in ({}, LABELS):
        with pytest.raises(SelectorError) as refusal:
            label_selector_matches(selector, labels)
        assert str(refusal.value) == text


KEYS = [
    ("app", ()),
    ("example.com/App_1.x", ()),
    ("a" * 63, ()),
    ("", ("name part must be non-empty", f"name part {BAD_NAME}")),
    ("-a", (f"name part {BAD_NAME}",)),
    ("é" * 32, ("name part must be no more than 63 bytes", f"name part {BAD_NAME}")),
    ("/a", ("prefix part must be non-empty",)),
    ("Example.com/a", (f"prefix part {BAD_DOMAIN}",)),
    ("a" * 254 + "/a", ("prefix part must be no more than 253 bytes",)),
    (
        "a/b/c",
        (
            f"a valid label key {BAD_NAME} with an optional DNS subdomain prefix and '/' "
            "(e.g. 'example.com/MyName')",
        ),
    ),
    ("a\n", (f"name part {BAD_NAME}",)),
]


@pytest.mark.parametrize(("key", "errors"), KEYS)
def test_label_keys(key: str, errors: tuple[str, ...]) -> None:
    assert label_key_errors(key) == errors


def test_label_values() -> None:
    assert label_value_errors("") == label_value_errors("a_1.b-2") == ()
    assert label_value_errors("a.") == (BAD_VALUE,)
    assert label_value_errors("a" * 64 + "-") == ("must be no more than 63 bytes", BAD_VALUE)


NODE = {"disk": "ssd", "cores": "8"}


def field_rule(operator: str, *values: str, key: str = "metadata.name") -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


TERMS = [
    (term(), False),
    (term(rule("In", "ssd")), True),
    (term(rule("In", "ssd"), rule("Gt", "8", key="cores")), False),
    (term(rule("In", "ssd"), rule("Lt", "9", key="cores")), True),
    (term(fields=(field_rule("In", "n1"),)), True),
    (term(fields=(field_rule("In", "n2"),)), False),
    (term(fields=(field_rule("NotIn", "n2"),)), True),
    (term(fields=(field_rule("NotIn", "n1"),)), False),
    (term(rule("In", "hdd"), fields=(field_rule("In", "n1"),)), False),
    # any other field is the empty string
    (term(fields=(field_rule("In", "n1", key="metadata.namespace"),)), False),
    (term(fields=(field_rule("In", "", key="metadata.namespace"),)), True),
    (term(fields=(field_rule("NotIn", "n1", key="spec.unschedulable"),)), True),
    # a fault anywhere: the term never matches
    (term(rule("In", "ssd"), rule("In")), False),
    (term(rule("In", "ssd"), rule("DoesNotExist", "x", key="gpu")), False),
    (term(rule("NotIn", "-3", key="cores")), False),
    (term(rule("Gt", "-3", key="cores")), False),
    (term(rule("Gt", "7", "6", key="cores")), False),
    (term(rule("in", "ssd")), False),
    (term(fields=(field_rule("In", "n1", "n2"),)), False),
    (term(fields=(field_rule("Exists"),)), False),
]


@pytest.mark.parametrize(("given", "matches"), TERMS)
def test_term_matches(given: NodeSelectorTerm, matches: bool) -> None:
    assert term_matches(given, NODE, "n1") is matches


def test_fields_do_not_count_for_a_nameless_node() -> None:
    assert term_matches(term(fields=(field_rule("In", "n1"),)), NODE, "")
    assert not term_matches(term(rule("In", "hdd"), fields=(field_rule("In", "n1"),)), NODE, "")


def test_node_selector_is_an_or() -> None:
    faulty, wrong, right = term(rule("In")), term(rule("In", "hdd")), term(rule("In", "ssd"))
    assert node_selector_matches(NodeSelector((faulty, wrong, right)), NODE, "n1")
    assert not node_selector_matches(NodeSelector((faulty, wrong, term())), NODE, "n1")
    assert not node_selector_matches(NodeSelector(), NODE, "n1")


FAULTS = [
    (term(rule("Exists")), ()),
    (
        term(rule("Has<")),
        (
            r'matchExpressions[0].operator: Unsupported value: "Has\u003c": supported values: '
            '"In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"',
        ),
    ),
    (
        term(fields=(field_rule("Exists"), field_rule("In", "a", "b"), field_rule("NotIn"))),
        (
            'matchFields[0].operator: Unsupported value: "Exists": supported values: "In", "NotIn"',
            'matchFields[1].values: Invalid value: ["a","b"]: must have one element',
            "matchFields[2].values: Invalid value: null: must have one element",
        ),
    ),
    (
        term(rule("Gt", "1", "x")),
        (
            'matchExpressions[0].values: Invalid value: ["1","x"]: '
            "for 'Gt', 'Lt' operators, exactly one value is required",
            'matchExpressions[0].values[1]: Invalid value: "x": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ),
    (
        term(rule("Lt")),
        (
            "matchExpressions[0].values: Invalid value: null: "
            "for 'Gt', 'Lt' operators, exactly one value is required",
        ),
    ),
]


@pytest.mark.parametrize(("given", "errors"), FAULTS)
def test_term_errors(given: NodeSelectorTerm, errors: tuple[str, ...]) -> None:
    assert term_errors(given) == errors
    assert term_errors(given, "[4]") == tuple(f"[4].{error}" for error in errors)


def preferred(weight: int, preference: NodeSelectorTerm) -> PreferredSchedulingTerm:
    return PreferredSchedulingTerm(weight, preference)


def test_a_faulty_preference_gives_the_text_that_ends_the_attempt() -> None:
    sound = preferred(1, term(rule("Exists")))
    terms = [sound, sound, preferred(50, term(rule("In", "-3", key="cores")))]
    assert preferred_terms_error(terms) == (
        f'[2].matchExpressions[0].values[0][cores]: Invalid value: "-3": {BAD_VALUE}'
    )


def test_preferences_without_weight_or_condition_are_not_looked_at() -> None:
    assert preferred_terms_error([preferred(0, term(rule("In"))), preferred(5, term())]) is None
    assert preferred_terms_error([]) is None


def test_several_faults_become_one_text() -> None:
    terms = [preferred(1, term(rule("In"))), preferred(1, term(rule("Exists", "a")))]
    assert preferred_terms_error(terms, "spec.preferred") == (
        "[spec.preferred[0].matchExpressions[0].values: Invalid value: null: "
        "for 'in', 'notin' operators, values set can't be empty, "
        'spec.preferred[1].matchExpressions[0].values: Invalid value: ["a"]: '
        "values set must be empty for exists and does not exist]"
    )


def test_node_selector_error_counts_empty_terms() -> None:
    selector = NodeSelector((term(), term(rule("In"))))
    text = (
        "nodeSelectorTerms[1].matchExpressions[0].values: Invalid value: null: "
        "for 'in', 'notin' operators, values set can't be empty"
    )
    assert node_selector_error(selector) == text
    assert node_selector_error(selector, "args.required") == f"args.required.{text}"
    assert node_selector_error(NodeSelector((term(rule("In", "ssd")),))) is None


def found_and_listed(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[str], list[str]]]:
    """The errors of all kinds of conditions: as found, and without the look ahead."""
    look = selectors._names_values
    for key in ("app", "example.com/app", "", "no key", "a/b/c"):
        for operator in ("In", "NotIn", "Exists", "Gt"):
            for values in ((), ("a",), ("",), ("a", "b" * 64), ("\u00e4",), ("a\n",), ("-", "a")):
                asked = NodeSelectorRequirement(key, operator, values)
                with monkeypatch.context() as patch:
                    patch.setattr(selectors, "_names_values", lambda asked: False)
                    listed = selectors._requirement_faults(asked)
                assert selectors._names_values is look
                yield selectors._requirement_faults(asked), listed


def test_conditions_that_name_values_have_no_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(found == listed for found, listed in found_and_listed(monkeypatch))


def test_control_all_values_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        selectors, "_names_values", lambda asked: asked.operator in ("In", "NotIn") and asked.values
        and not label_key_errors(asked.key) and not label_value_errors(asked.values[0])
    )  # fmt: skip
    assert any(found != listed for found, listed in found_and_listed(monkeypatch))
