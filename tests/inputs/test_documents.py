"""YAML and JSON documents: values, types, and positions of errors."""

from typing import Any

import pytest

from stowplan.inputs.document_reader import documents
from stowplan.inputs.input_error import InputError
from stowplan.objects.encoding.yaml_documents import ALIASED_MAX, DEPTH_MAX


def trees(text: str, form: str = "") -> list[Any]:
    return [document.tree for document in documents(text.encode(), "f", form)]


def error_text(text: str | bytes, form: str = "") -> str:
    data = text.encode() if isinstance(text, str) else text
    with pytest.raises(InputError) as caught:
        list(documents(data, "f", form))
    return str(caught.value)


# Valid documents.


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", []),
        ("# only a remark\n", []),
        ("a: 1", [{"a": 1}]),
        ("a: 1\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
        ("---\n---\n# nothing\n---\na: 1\n...\n", [{"a": 1}]),
        ("{a: 1, b: [x]}", [{"a": 1, "b": ["x"]}]),
        ('{"a": 1}', [{"a": 1}]),
        ('{"a": 1}\n{"b": 2}', [{"a": 1}, {"b": 2}]),
        ('{"a": 1}\n---\n{"b": 2}\n', [{"a": 1}, {"b": 2}]),
        ("\ufeff{}", [{}]),
        ("a: &x {b: 1}\nc: *x\n", [{"a": {"b": 1}, "c": {"b": 1}}]),
        ("a: &x {b: 1}\nc: {<<: *x, d: 2}\n", [{"a": {"b": 1}, "c": {"b": 1, "d": 2}}]),
        ("a: &x {b: 1}\nc: {<<: *x, b: 2}\n", [{"a": {"b": 1}, "c": {"b": 2}}]),
        ("a: |\n  x\n  ---\n", [{"a": "x\n---\n"}]),
        ("1: x\ntrue: y\n", [{"1": "x", "true": "y"}]),
    ],
)
def test_documents(text: str, wanted: list[Any]) -> None:
    assert trees(text, "yaml") == wanted


def test_json_is_found_out_by_its_first_character() -> None:
    assert trees('{"a": "\\u0041"}') == [{"a": "A"}]
    assert trees('{"a": 1}{"a": 2}', "json") == [{"a": 1}, {"a": 2}]
    assert trees(" ", "json") == []


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("2026-01-31T12:00:00Z", "2026-01-31T12:00:00Z"),
        ("2026-01-31", "2026-01-31"),
        ("22:22", "22:22"),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("500m", "500m"),
        ("1e3", 1000.0),
        ("1Gi", "1Gi"),
        ("0x1f", 31),
        ("010", 8),
        ("1_000", 1000),
        ("yes", True),
        ("Off", False),
        ("y", "y"),
        ("~", None),
        ("", None),
        ("-.inf", float("-inf")),
    ],
)
def test_scalars(text: str, wanted: Any) -> None:
    ((value,),) = (tree.values() for tree in trees(f"a: {text}\n"))
    assert value == wanted
    assert type(value) is type(wanted)


def test_documents_know_their_place() -> None:
    found = list(documents(b"# x\n---\n---\n\nkind: A\n---\nkind: B\n", "f", "yaml"))
    assert [document.place for document in found] == ["document 2, line 5", "document 3, line 7"]
    (found_json,) = documents(b'{"a": 1}', "f", "json")
    assert found_json.place == "document 1"


# Errors.


@pytest.mark.parametrize(
    ("text", "form", "wanted"),
    [
        ("a: 1\nb: 2\na: 3\n", "yaml", "f: line 3, column 1: the key 'a' again: expected each"),
        ("a:\n  b: [1, 2\n", "yaml", "f: line 3, column 1: did not find expected ',' or ']'"),
        ("a: b: c\n", "yaml", "f: line 1, column 5: mapping values are not allowed"),
        ("? [a]\n: b\n", "yaml", "f: line 1, column 3: a key that is no scalar: expected a name"),
        (
            "a: *x\n",
            "yaml",
            "f: line 1, column 4: Invalid value: *x: expected an anchor that was defined",
        ),
        (
            "a: &x [*x]\n",
            "yaml",
            "f: line 1, column 8: Invalid value: *x: expected a value that does not",
        ),
        ("a: !!python/object:os.x {}\n", "yaml", "f: line 1, column 4: the tag 'tag:yaml.org"),
        ("a: !!binary aGk=\n", "yaml", "f: line 1, column 4: the tag 'tag:yaml.org,2002:bin"),
        ("<<: [1]\n", "yaml", "f: line 1, column 5: another value for <<: expected a mapping"),
        ("a: \x01\n", "yaml", "f: "),
        # Python versions point at the comma or behind it.
        ('{"a": 1,}', "json", "f: line 1, column "),
        ('{"a": 1}\n nope', "json", "f: line 2, column 2: Invalid value: 'nope': expected JSON"),
        ('{"a": ', "json", "f: line 1, column 7: the end of the text: expected JSON"),
        ("a: 1", "json", "f: line 1, column 1: Invalid value: 'a: 1': expected JSON"),
        ('{"a": 1,}', "", "f: line 1, column "),
    ],
)
def test_errors(text: str, form: str, wanted: str) -> None:
    text = error_text(text, form)
    assert text.startswith(wanted), text
    assert ": expected " in text
    assert "\n" not in text


def test_what_is_not_utf_8() -> None:
    assert error_text(b"a: 1\nb: \xff\n") == "f: line 2: invalid byte 0xff: expected UTF-8 text"


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 10**80])
def test_numbers_beyond_64_bits(number: int) -> None:
    wanted = "a longer number: expected whole numbers within 64 bits"
    assert error_text(f"a:\n  b: {number}\n", "yaml") == f"f: line 2, column 6: {wanted}"
    assert error_text(f'{{"a": [{{"b": {number}}}]}}', "json") == f"f: document 1: {wanted}"


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63), "'9223372036854775808'"])
def test_numbers_of_64_bits(number: int | str) -> None:
    assert trees(f"a: {number}") == [
        {"a": int(number) if isinstance(number, int) else number[1:-1]}
    ]
    text = str(number).replace("'", '"')
    assert trees(f'{{"a": {text}}}', "json") == trees(f"a: {number}")


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "a: " + "[" * 5000 + "]" * 5000,
        "\n".join("  " * depth + f"a{depth}:" for depth in range(500)),
    ],
)
def test_deep_nesting_in_yaml_ends_in_a_line(text: str) -> None:
    wanted = f"deeper nesting: expected at most {DEPTH_MAX} levels"
    assert error_text(text, "yaml").endswith(wanted)


@pytest.mark.parametrize("tail", ["", "]" * 100_000 + "}"])
def test_deep_nesting_in_json_ends_in_a_line(tail: str) -> None:
    text = '{"a": ' + "[" * 100_000 + tail
    assert "deeper nesting" in error_text(text, "json")


def test_aliases_within_aliases_end_in_a_line() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    text = error_text("\n".join(lines), "yaml")
    more = "a document that expands to more"
    assert text.endswith(f"{more}: expected at most {ALIASED_MAX} values by alias")
