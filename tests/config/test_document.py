"""YAML and JSON as configuration files use them, and what is wrong with those that cannot be."""

from typing import Any

import pytest

from stowplan.config.document_trees import VALUES_MAX, documents
from stowplan.config.strict_decoder import Problems


def read(text: str | bytes) -> list[Any]:
    problems = Problems()
    found = documents(text, problems)
    assert not problems.found
    return found


def errors(text: str | bytes) -> list[str]:
    problems = Problems()
    documents(text, problems)
    return [str(problem) for problem in problems.found]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1", 1),
        ("-1", -1),
        ("+1", 1),
        ("1_000", 1000),
        ("010", 8),
        ("0o10", 8),
        ("0x1F", 31),
        ("0b11", 3),
        ("0", 0),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("-2.", -2.0),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        ("true", True),
        ("No", False),
        ("on", True),
        ("~", None),
        ("", None),
        ("null", None),
        ("y", "y"),
        ("text", "text"),
        ("5s", "5s"),
        ("1:30", "1:30"),
        ("2001-12-14", "2001-12-14"),
        ("2001-12-14T21:59:43Z", "2001-12-14T21:59:43Z"),
        ("=", "="),
        ("0.5.1", "0.5.1"),
        ("9" * 5000, "9" * 5000),
        ("'1'", "1"),
        ('"true"', "true"),
        ("!!str 1", "1"),
        ("!!int 1", 1),
        ("! 1", "1"),
        ("|\n    1\n", "1\n"),
        ("[1, a]", [1, "a"]),
        ("{b: 1}", {"b": 1}),
        ("!!map {b: 1}", {"b": 1}),
    ],
)
def test_values(text: str, value: Any) -> None:
    assert read(f"a: {text}") == [{"a": value}]
    assert type(read(f"a: {text}")[0]["a"]) is type(value)


def test_json_is_yaml() -> None:
    text = '{\n\t"a": [1, 2.5, null, true],\n\t"b": {"c": "\\u00e4\\"\\/"}}'
    assert read(text.replace("\t", "  ")) == [{"a": [1, 2.5, None, True], "b": {"c": 'ä"/'}}]


def test_keys_are_text() -> None:
    assert read("1: a\non: b\nnull: c\n") == [{"1": "a", "on": "b", "null": "c"}]


def test_aliases_and_merges() -> None:
    text = """
    base: &base {a: 1, b: 2}
    more: &more {b: 3, c: 4}
    same: *base
    over: {b: 9, <<: *base}
    both: {<<: [*more, *base]}
    text: {"<<": 1}
    """
    tree = read(text)[0]
    assert tree["same"] == {"a": 1, "b": 2}
    assert tree["over"] == {"a": 1, "b": 9}
    assert tree["both"] == {"a": 1, "b": 3, "c": 4}
    assert tree["text"] == {"<<": 1}


def test_empty_documents_do_not_count() -> None:
    assert read("") == read("---\n") == read("# nothing\n") == []
    assert read("---\na: 1\n---\n---\n") == [{"a": 1}]
    assert read("a: 1\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]


def test_bytes_and_byte_order_mark() -> None:
    assert read("\ufeffa: ä".encode()) == [{"a": "ä"}]


def test_repeated_keys_are_all_named_and_the_first_holds() -> None:
    text = "a: 1\nb:\n- {c: 1, c: 2}\na: 3\n"
    problems = Problems()
    assert documents(text, problems) == [{"a": 1, "b": [{"c": 1}]}]
    assert [str(problem) for problem in problems.found] == [
        "b[0].c: Invalid value: the key again in line 3: expected each key once (first in line 3)",
        "a: Invalid value: the key again in line 4: expected each key once (first in line 1)",
    ]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("a: b: c", "line 1, column 5"),
        ("a:\n\t- b", "line 2, column 1"),
        ("a: [1,\n", "line 2, column 1"),
        ("a: 'b\n", "line 2, column 1"),
        ("- a\nb: 1\n", "line 2, column 1"),
    ],
)
def test_bad_syntax_names_line_and_column(text: str, place: str) -> None:
    (error,) = errors(text)
    assert error.startswith(f"{place}: Invalid value: ")
    assert error.endswith("expected well-formed YAML or JSON")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "a: *b",
            "line 1, column 4: Invalid value: *b: expected an anchor that was defined before",
        ),
        (
            "a: &b [*b]",
            "line 1, column 8: Invalid value: *b: expected a value that does not contain itself",
        ),
        ("? [a]\n: 1", "line 1, column 3: Invalid value: a key that is no scalar: expected a name"),
        ("<<: 1", "line 1, column 5: Invalid value: <<: 1: expected a mapping or a list of them"),
        (
            "a: " + "[" * 200,
            "line 1, column 104: Invalid value: deeper nesting: expected at most 100 levels",
        ),
        (
            "a: " + "[" * 200_000,
            "line 1, column 104: Invalid value: deeper nesting: expected at most 100 levels",
        ),
        (
            b"a: \xff",
            "character 4: Invalid value: bytes that are not UTF-8: expected text in UTF-8",
        ),
        (
            "a: \ud800",
            "character 4: Invalid value: bytes that are not UTF-8: expected text in UTF-8",
        ),
    ],
)
def test_what_cannot_be_read(text: str | bytes, error: str) -> None:
    assert errors(text) == [error]


@pytest.mark.parametrize("text", ["!!python/object:os.system x", "!x [1]", "!!set {a}", "!!int a"])
def test_tags_make_nothing(text: str) -> None:
    (error,) = errors(f"a: {text}")
    assert error.endswith("expected plain data without tags")


@pytest.mark.parametrize("before", ["a: 1\nb: ", "ä: ö\nü: "])
def test_control_characters(before: str) -> None:
    (error,) = errors(f"{before}\x01")
    assert error.startswith("character 9: Invalid value: ")


def test_numbers_of_any_length_are_left_to_the_walk() -> None:
    assert read(f"a: {2**63}") == [{"a": 2**63}]


def test_written_values_count_too() -> None:
    (error,) = errors(f"[{'1,' * VALUES_MAX}]")
    assert error.endswith(
        f"Invalid value: a document that expands to more: expected at most {VALUES_MAX} values"
    )


def test_aliases_of_aliases_do_not_exhaust_the_machine() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    (error,) = errors("\n".join(lines))
    assert error.endswith(f"expected at most {VALUES_MAX} values")
