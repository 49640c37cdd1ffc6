"""Patterns of schemas: Go's syntax, and no text that keeps the server busy."""

from __future__ import annotations

import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apiserver.crd.regular_expressions import PatternError, SchemaPattern
from stowplan.apiserver.crd.value_validation import ValueValidator
from tests.property.wrong import assert_caught
from tests.soak import examples


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [
        ("a|b", "xbx", True),
        ("^(a|b)*c$", "ababc", True),
        ("^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", "a-", False),
        # In Python `$` stands before the last line break too, and \d for all digits there are.
        ("^a+$", "aa\n", False),
        (r"^\d$", "\N{ARABIC-INDIC DIGIT THREE}", False),
        (r"^\d{2,3}$", "1234", False),
        (r"\bfoo\b", "a foo b", True),
        (r"\bfoo\b", "afoo", False),
        ("(?i)^ABC$", "aBc", True),
        ("^(?:a(?i)b)c$", "aBC", False),
        ("^[[:alpha:]]$", "1", False),
        ("^[^[:alpha:]]$", "1", True),
        (r"^\pL\p{Greek}\P{Lu}$", "é\N{GREEK SMALL LETTER ALPHA}x", True),
        ("^a{0}$", "a", False),
        ("^(ab|cd){2,}$", "abcdab", True),
        ("^(a?){3}$", "aaaa", False),
        ("a{,2}", "a{,2}", True),
        ("^.$", "\n", False),
        ("(?s)^.$", "\n", True),
        ("(?m)^b$", "a\nb\nc", True),
        (r"^\Qa.b\E$", "axb", False),
        ("^[]a-]+$", "]-a", True),
        (r"^\x41\x{1F600}\z", "A\N{GRINNING FACE}", True),
        (r"^\_\.$", "_.", True),
        (r"^\Q\C\E\\C$", r"\C\C", True),
        ("", "x", True),
    ],
)
def test_patterns_are_read_as_go_reads_them(pattern: str, text: str, found: bool) -> None:
    assert SchemaPattern(pattern).found_in(text) is found


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("(", "missing closing ): `(`"),
        ("a)", "unexpected ): `a)`"),
        ("[a", "missing closing ]: `[a`"),
        ("*", "missing argument to repetition operator: `*`"),
        ("a**", "invalid nested repetition operator: `**`"),
        ("a{1001}", "invalid repeat count: `{1001}`"),
        (r"(a)\1", r"invalid escape sequence: `\1`"),
        ("[z-a]", "invalid character class range: `z-a`"),
        ("\\", "trailing backslash at end of expression: ``"),
        ("(?i)*", "missing argument to repetition operator: `*`"),
        ("(?-)", "invalid or unsupported Perl syntax: `(?-)`"),
        ("(?=a)", "invalid or unsupported Perl syntax: `(?=`"),
        ("((a{1000}){1000}){1000}", "invalid repeat count: `{1000}`"),
        (r"a\C", r"invalid escape sequence: `\C`"),
        (r"(?:\pL{100}){10}(?:\pL{100}){10}", "expression too large"),
        ("(a" * 1000 + ")" * 1000, "expression nests too deeply"),
    ],
)
def test_what_go_refuses_is_refused_in_its_words(pattern: str, message: str) -> None:
    with pytest.raises(PatternError) as refused:
        SchemaPattern(pattern)
    assert str(refused.value).startswith(message)


def test_groups_are_counted_by_depth_only() -> None:
    assert SchemaPattern("(a)" * 2000 + r"\(" * 2000).found_in("a" * 2000 + "(" * 2000)


def growth(pattern: str, length: int) -> float:
    """How much longer a text four times as long takes, at best of five."""

    def cost(text: str) -> float:
        expression, best = SchemaPattern(pattern), float("inf")
        for _ in range(5):
            begun = time.thread_time()
            assert not expression.found_in(text)
            best = min(best, time.thread_time() - begun)
        return best

    return cost("a" * 4 * length) / cost("a" * length)


@pytest.mark.parametrize("pattern", ["(a+)+b", "^(a|a)*b", "(a*)*b", "a*a*a*a*a*b"])
def test_a_longer_text_takes_longer_in_proportion(pattern: str) -> None:
    # What grows faster does so in every turn; a busy machine is to blame for one or two.
    assert any(growth(pattern, 200_000) < 12 for _ in range(8))


@pytest.mark.parametrize("pattern", ["(a+)+$", "^(a|a)*$"])
def test_a_value_of_a_schema_is_checked_at_once(pattern: str) -> None:
    """Python's own matcher would be at it for longer than anybody waits."""
    schema = {"type": "string", "pattern": pattern}
    assert len(list(ValueValidator().check("a" * 20_000 + "!", schema))) == 1


TEXTS = st.text(max_size=8)


def finds_itself(text: str) -> None:
    """A text is found by itself, by its number of characters, and with nothing after it."""
    for pattern in (f"^{re.escape(text)}$", f"^(?s:.){{{len(text)}}}$"):
        assert SchemaPattern(pattern).found_in(text)
        assert not SchemaPattern(pattern).found_in(text + "\n")


@given(text=TEXTS)
@settings(max_examples=examples(200))
def test_a_text_is_found_by_its_characters(text: str) -> None:
    finds_itself(text)


def as_python(pattern: bytes, options: object) -> re.Pattern[bytes]:
    return re.compile(pattern)


def test_a_matcher_of_python_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """It lets `$` stand before the last line break, and grows beyond all bounds."""
    monkeypatch.setattr("stowplan.apiserver.crd.regular_expressions.re2.compile", as_python)
    assert_caught(finds_itself, TEXTS)
    assert growth("(a+)+b", 4) > 12


def test_counting_bytes_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "stowplan.apiserver.crd.regular_expressions._encoded",
        lambda text: text.encode("utf-16-le", errors="surrogatepass").decode("latin-1").encode(),
    )
    assert_caught(finds_itself, TEXTS)
