"""YAML bodies: what they become, and what they may not do."""

import pytest

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.schema.json_parser import DEPTH_MAX
from stowplan.apiserver.http import yaml_body
from stowplan.apiserver.http.yaml_body import YamlBodyError, read_yaml, warning_lines


def test_keys_and_times_become_texts() -> None:
    raw = b"2: a\ntrue: b\nat: 2001-01-01T00:00:00Z\nlist: [1, 1.5, null]\n"
    assert read_yaml(raw)[0] == {
        "2": "a",
        "true": "b",
        "at": "2001-01-01T00:00:00Z",
        "list": [1, 1.5, None],
    }


def test_aliases_cannot_grow_without_bound() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join(f'*a{n - 1}' for _ in range(10))}]" for n in range(1, 12)]
    with pytest.raises(YamlBodyError, match="excessive aliasing"):
        read_yaml("\n".join(lines).encode())


@pytest.mark.parametrize("raw", [b"a: &a [*a]", b"[" * 2000 + b"]" * 2000])
def test_what_has_no_end_is_refused(raw: bytes) -> None:
    with pytest.raises(YamlBodyError, match=r"max depth|contains itself"):
        read_yaml(raw)


@pytest.mark.parametrize(
    "raw",
    [b"- " * 30_000, b"? " * 30_000, b"[" * 100_000, b"{a: " * 60_000],
    ids=lambda raw: raw[:4],
)
def test_nesting_ends_neither_the_process_nor_its_patience(
    raw: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The composer of the library recurses once per level, and its parser looks back at each."""
    events = []
    real = yaml_body.LOADER

    class Counting(real):  # type: ignore[misc, valid-type]
        def get_event(self) -> object:
            events.append(1)
            return super().get_event()

    monkeypatch.setattr(yaml_body, "LOADER", Counting)
    with pytest.raises(YamlBodyError, match=r"max depth|invalid map key"):
        read_yaml(raw)
    assert len(events) <= 2 * DEPTH_MAX + 4


def test_depth_is_counted_through_aliases() -> None:
    lines = ["a0: &a0 " + "[" * 100 + "]" * 100]
    lines += [f"a{n}: &a{n} {'[' * 60}*a{n - 1}{']' * 60}" for n in range(1, 4)]
    with pytest.raises(YamlBodyError, match="max depth"):
        read_yaml("\n".join(lines).encode())


def test_merge_keys_fill_in_missing_keys() -> None:
    raw = b"a: &a {x: 1, w: 2}\nb: &b {w: 3, z: 4}\nc: {<<: [*a, *b], x: 0}\nd: {<<: *c0}\n"
    tree, repeated = read_yaml(raw.replace(b"c:", b"c: &c0"))
    assert tree["c"] == {"x": 0, "w": 2, "z": 4}
    assert tree["d"] == tree["c"]
    assert tree["d"] is not tree["c"]
    assert repeated == []
    assert read_yaml(b'{"<<": 1}')[0] == {"<<": 1}
    with pytest.raises(YamlBodyError, match="map merge requires map"):
        read_yaml(b"a: {<<: 1}")


def test_merge_keys_cannot_grow_without_bound() -> None:
    lines = ["a0: &a0 {x: 1}"]
    lines += [f"a{n}: &a{n} {{<<: [{', '.join([f'*a{n - 1}'] * 9)}]}}" for n in range(1, 12)]
    with pytest.raises(YamlBodyError, match="excessive aliasing"):
        read_yaml("\n".join(lines).encode())


@pytest.mark.parametrize(
    ("raw", "tree"),
    [
        (b"a: 22:22", {"a": "22:22"}),
        (b"a: " + b"1:" * 900 + b"1.5", {"a": "1:" * 900 + "1.5"}),
        (b"a: 2001-99-99", {"a": "2001-99-99"}),
        (b"a: =", {"a": "="}),
        (b"a: &x 1\n*x : 2", {"a": 1, "1": 2}),
        (b"", None),
        (b"a: &x 1\nb: &x 2\nc: *x", {"a": 1, "b": 2, "c": 2}),
    ],
)
def test_what_the_library_cannot_read_is_read_as_the_original_does(
    raw: bytes, tree: object
) -> None:
    assert read_yaml(raw) == (tree, [])


@pytest.mark.parametrize("raw", [b"a: !!bool x", b"a: !x y", b"a: *b", b"[1]: 2", b"a\n---\nb"])
def test_what_makes_no_sense_is_refused(raw: bytes) -> None:
    with pytest.raises(YamlBodyError, match=r"^yaml: "):
        read_yaml(raw)


@pytest.mark.parametrize("digits", [309, 5000])
def test_numbers_without_end_are_refused(digits: int) -> None:
    with pytest.raises(YamlBodyError):
        read_yaml(b"a: " + b"9" * digits)


def test_a_syntax_error_is_reported_with_its_line() -> None:
    with pytest.raises(YamlBodyError) as raised:
        read_yaml(b"apiVersion: v1\n  kind: [")
    text = "yaml: line 2: mapping values are not allowed in this context"
    assert str(raised.value) == text


def test_much_yaml_is_not_read() -> None:
    with pytest.raises(ApiError) as raised:
        read_yaml(b"a: " + b"x" * yaml_body.YAML_BODY_BYTES_MAX)
    assert raised.value.code == 413


def test_duplicate_keys_are_reported_together_or_line_by_line() -> None:
    raw = b"a: 1\nb:\n  c: 1\n  c: 2\na: 2\n"
    _, (text,) = read_yaml(raw)
    assert text == (
        'yaml: unmarshal errors:\n  line 4: key "c" already set in map\n'
        '  line 5: key "a" already set in map'
    )
    assert warning_lines(text) == [
        'line 4: key "c" already set in map',
        'line 5: key "a" already set in map',
    ]
    assert read_yaml(b"a: 1\nb: &x [1]\nc: *x\n")[1] == []
    assert warning_lines("as it is") == ["as it is"]


def test_a_bound_that_is_not_kept_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml_body, "YAML_NODES_MAX", 3)
    with pytest.raises(YamlBodyError):
        read_yaml(b"[1, 2, 3]")
    assert read_yaml(b"[1, 2]") == ([1, 2], [])


def test_short_booleans_of_yaml_1_1() -> None:
    assert read_yaml(b"a: y\nb: N\nc: 'y'\nd: yes\nn: 1\n")[0] == {
        "a": True,
        "b": False,
        "c": "y",
        "d": True,
        "false": 1,
    }


def test_the_first_document_counts_where_asked() -> None:
    assert read_yaml(b"a: 1\n---\nb: 2\n", first=True) == ({"a": 1}, [])
