"""Regular expressions of schemas: Go's syntax, and its promise that no text takes long to match.

Whoever may define a kind may write any pattern, and one thread serves everybody: a matcher that
tries alternatives one after the other, as Python's does, could be kept busy for ever by `(a+)+$`.
RE2, from which Go's package descends, follows all alternatives at once.

Differs: RE2 takes two groups of one name, knows general categories by their short names only, finds
`\\B` between the bytes of one character, and refuses what needs more than `MEMORY_MAX`, where Go
counts in its own way. Depth is counted in parentheses.
Source: Go 1.26, regexp and regexp/syntax.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import accumulate

import re2

MEMORY_MAX = 8 << 20
"""Bytes that one pattern may take, with what is remembered of matching it."""
NESTED_MAX = 999
"""Groups within each other; RE2 itself takes time by the square of that."""
CACHED_PATTERNS_MAX = 128
_GO_TEXTS = {
    "bad repetition operator": "invalid nested repetition operator",
    "invalid named capture group": "invalid named capture",
    "invalid perl operator": "invalid or unsupported Perl syntax",
    "invalid repetition size": "invalid repeat count",
    "missing )": "missing closing )",
    "missing ]": "missing closing ]",
    "no argument for repetition operator": "missing argument to repetition operator",
    "trailing \\": "trailing backslash at end of expression",
}
_SIGNS = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|[()]", re.DOTALL)


class PatternError(ValueError):
    """A pattern that Go refuses; its text is what Go says."""


class SchemaPattern:
    """A pattern that was read. Raises BadExpression."""

    def __init__(self, pattern: str) -> None:
        signs = _SIGNS.findall(pattern)
        # One byte of a character is what only RE2 can ask for.
        if r"\C" in signs:
            raise PatternError(r"invalid escape sequence: `\C`")
        depths = accumulate((sign == "(") - (sign == ")") for sign in signs)
        if max(depths, default=0) > NESTED_MAX:
            raise PatternError(f"expression nests too deeply: `{pattern}`")
        options = re2.Options()
        options.max_mem = MEMORY_MAX
        options.never_capture = True
        options.log_errors = False
        try:
            self._compiled = re2.compile(_encoded(pattern), options)
        except re2.error as error:
            raise PatternError(
                _go_error_text(error.args[0].decode(errors="replace"), pattern)
            ) from None

    def found_in(self, text: str) -> bool:
        """True if any part of the text matches."""
        return self._compiled.search(_encoded(text)) is not None


def _encoded(text: str) -> bytes:
    """UTF-8; half a surrogate pair, which JSON can hold, counts as a character."""
    return text.encode(errors="surrogatepass")


def _go_error_text(told: str, pattern: str) -> str:
    """What Go says where RE2 says `missing ]: [a`."""
    if told.startswith("pattern too large"):
        return f"expression too large: `{pattern}`"
    problem, _, part = told.partition(": ")
    return f"{_GO_TEXTS.get(problem, problem)}: `{part}`"


@lru_cache(maxsize=CACHED_PATTERNS_MAX)
def schema_pattern(pattern: str) -> SchemaPattern:
    """The pattern, read once. Raises BadExpression."""
    return SchemaPattern(pattern)
