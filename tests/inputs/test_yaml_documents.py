"""Documents of a text: options, limits, and errors."""

import json
from typing import Any

import pytest
import yaml
from hypothesis import find, given
from hypothesis import strategies as st

from stowplan.objects.encoding import yaml_documents as module
from stowplan.objects.encoding.yaml_documents import (
    ALIASED_MAX,
    DEPTH_MAX,
    DocumentError,
    DuplicateKey,
    InvalidMergeKey,
    UnprintableCharacter,
    parse_documents,
    parse_yaml_documents,
)

TREES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text("ab01:-~#\"' é\n"),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab<1 "), inner, max_size=3)
    ),
    max_leaves=10,
)


def trees(text: str, **choices: Any) -> list[Any]:
    return [document.tree for document in parse_yaml_documents(text, **choices)]


def refusal(text: str, form: str = "yaml", **choices: Any) -> DocumentError:
    with pytest.raises(DocumentError) as caught:
        list(parse_yaml_documents(text, **choices) if choices else parse_documents(text, form))
    return caught.value


# Valid documents.


def same(one: Any, other: Any) -> bool:
    """Equal in value and type, and in the order of keys."""
    return repr(one) == repr(other)


def comes_back(tree: Any) -> bool:
    text = yaml.safe_dump(tree, allow_unicode=True, sort_keys=False)
    wanted = [] if tree is None else [tree]
    from_json = [document.tree for document in parse_documents(json.dumps(tree), "json")]
    return same(trees(text), wanted) and same(from_json, wanted)


@given(TREES)
def test_what_was_dumped_comes_back(tree: Any) -> None:
    assert comes_back(tree)


def test_control_a_reader_that_forgets_quotes(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(composer: object, event: yaml.ScalarEvent) -> Any:
        return module._resolved(event.value)

    monkeypatch.setattr(module._Composer, "_scalar", forgetful)
    # Raises for a text without a tree.
    find(TREES, lambda tree: not comes_back(tree))


def test_own_keys_come_before_merged_ones_and_prevail() -> None:
    (tree,) = trees("a: &x {b: 1, c: 1}\nd: &y {c: 2, e: 2}\nf: {<<: [*y, *x], b: 3}\n")
    assert list(tree["f"].items()) == [("b", 3), ("c", 2), ("e", 2)]
    assert tree["a"] == {"b": 1, "c": 1}


def test_documents_are_counted_though_they_are_empty() -> None:
    found = list(parse_documents("---\n---\na: 1\n"))
    assert [(document.number, document.line) for document in found] == [(2, 3)]
    assert found[0].place == "document 2, line 3"


def test_anchors_end_with_their_document() -> None:
    refused = refusal("a: &x 1\n---\nb: *x\n")
    assert (refused.place, refused.got) == ("line 3, column 4", "*x")


# Options.


def test_repeated_keys_are_reported_with_their_path() -> None:
    duplicates: list[DuplicateKey] = []
    text = "a: 1\nb:\n- x: [{}]\n- {c: 1, c: 2}\na:\n  d: 1\n  d: 2\n"
    assert trees(text, repeated=duplicates.append) == [{"a": 1, "b": [{"x": [{}]}, {"c": 1}]}]
    assert duplicates == [
        DuplicateKey(("b", 1, "c"), 4, 10, 4),
        DuplicateKey(("a", "d"), 7, 3, 6),
        DuplicateKey(("a",), 5, 1, 1),
    ]


def test_repeated_keys_are_errors_unless_a_callback_is_given() -> None:
    refused = refusal("a: 1\nb: 2\na: 3\n")
    assert refused.place == "line 3, column 1"
    assert (refused.got, refused.wanted) == ("the key 'a' again", "each key once")


@pytest.mark.parametrize("tag", ["", "!!int "])
def test_numbers_are_of_64_bits_unless_longer_ones_are_asked_for(tag: str) -> None:
    text = f"a: {tag}{2**63}"
    assert refusal(text).got == "a longer number"
    assert trees(text, long_numbers=True) == [{"a": 2**63}]


@pytest.mark.parametrize("text", ["[1, 2, 3]", "[&x [1], *x]", "[1]\n---\n[2]\n"])
def test_values_may_be_bounded(text: str) -> None:
    n_values = {"[1, 2, 3]": 4, "[&x [1], *x]": 5}.get(text, 4)
    assert trees(text, values_max=n_values)
    refused = refusal(text, values_max=n_values - 1)
    assert (refused.got, refused.wanted) == (
        "a document that expands to more",
        f"at most {n_values - 1} values",
    )


# Limits.


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def test_as_deep_as_allowed_and_one_deeper() -> None:
    assert trees(nested(DEPTH_MAX + 1))
    assert refusal(nested(DEPTH_MAX + 2)).got == "deeper nesting"


def test_aliases_do_not_hide_depth() -> None:
    half = DEPTH_MAX // 2
    text = f"- &x {nested(half)}\n- y"
    fits, fails = ("[" * n + "*x" + "]" * n for n in (half, half + 1))
    assert trees(text + f"\n- {fits}")
    refused = refusal(text + f"\n- {fails}")
    assert (refused.got, refused.place) == ("deeper nesting", f"line 3, column {half + 4}")


def test_depth_adds_up_over_aliases_of_aliases() -> None:
    lines = ["- &a0 [x]"] + [f"- &a{n} [[*a{n - 1}]]" for n in range(1, DEPTH_MAX)]
    refused = refusal("\n".join(lines))
    assert refused.got == "deeper nesting"
    assert refused.place.startswith(f"line {DEPTH_MAX // 2 + 1},")


def test_a_shallow_anchor_inside_does_not_hide_the_depth_of_the_outer_one() -> None:
    half = DEPTH_MAX // 2
    text = f"- &x [{nested(half)}, &y [x]]\n- "
    assert trees(f"{text}{'[' * (half - 1)}*x{']' * (half - 1)}")
    assert refusal(f"{text}{'[' * half}*x{']' * half}").got == "deeper nesting"


def test_scalars_add_no_level() -> None:
    deepest = "[" * DEPTH_MAX + "*x" + "]" * DEPTH_MAX
    assert trees(f"- &x 1\n- {deepest}") == trees(f"- 1\n- {deepest.replace('*x', '1')}")


def test_a_neighbour_of_a_deep_anchor_is_no_deeper_for_it() -> None:
    deep = "[" * (DEPTH_MAX - 1) + "&low [x]" + "]" * (DEPTH_MAX - 1)
    assert trees(f"- {deep}\n- &y [x]\n- {'[' * (DEPTH_MAX - 1)}*y{']' * (DEPTH_MAX - 1)}\n")


def test_written_values_have_no_bound_but_aliased_ones_do() -> None:
    text = f"- &x [{'1,' * 1000}]\n" + "- *x\n" * 999
    assert len(trees(text)[0]) == 1000
    assert refusal(text + "- *x\n").wanted == f"at most {ALIASED_MAX} values by alias"


# Errors.


def test_errors_carry_what_a_face_needs() -> None:
    unmergeable = refusal("<<: [1]")
    assert isinstance(unmergeable, InvalidMergeKey)
    assert (unmergeable.place, unmergeable.value) == ("line 1, column 5", [1])
    unprintable = refusal("é: é\nb: \x01")
    assert isinstance(unprintable, UnprintableCharacter)
    assert (unprintable.place, unprintable.position) == ("line 2", 8)
    assert str(refusal("{", "json")).startswith(
        "line 1, column 2: Invalid value: the end of the text: expected"
    )


def test_numbers_that_are_too_large_are_strings_as_kubectl_writes_hashes() -> None:
    assert trees("[07e17038, 1e400, -12e45678, 1e3, 07e1, .inf]") == [
        ["07e17038", "1e400", "-12e45678", 1000.0, 70.0, float("inf")]
    ]
