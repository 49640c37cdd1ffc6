"""Regular expressions of schemas: Go's syntax, with matching in linear time.

Clients choose the patterns, and one thread serves all clients: a backtracking matcher such as
Python's could run for ever on `(a+)+$`. RE2, the base of Go's package, does not backtrack.

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

from stowplan.cel.pattern_errors import go_pattern_error

MEMORY_MAX = 8 << 20
"""Memory of one pattern in bytes, its DFA cache included."""
NESTED_MAX = 999
"""Maximum nesting of groups; RE2 takes quadratic time in it."""
CACHED_PATTERNS_MAX = 128
_SIGNS = re.compile(r"\\Q.*?(?:\\E|\Z)|\\.|[()]", re.DOTALL)


class PatternError(ValueError):
    """A pattern that Go rejects; the text is Go's."""


class SchemaPattern:
    """A compiled pattern. Raises PatternError."""

    def __init__(self, pattern: str) -> None:
        signs = _SIGNS.findall(pattern)
        # Only RE2 can match a single byte of a character.
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
                go_pattern_error(error.args[0].decode(errors="replace"), pattern)
            ) from None

    def found_in(self, text: str) -> bool:
        """True if a part of the text matches."""
        return self._compiled.search(_encoded(text)) is not None


def _encoded(text: str) -> bytes:
    """UTF-8; a lone surrogate, which JSON can contain, counts as a character."""
    return text.encode(errors="surrogatepass")


@lru_cache(maxsize=CACHED_PATTERNS_MAX)
def schema_pattern(pattern: str) -> SchemaPattern:
    """The compiled pattern, cached. Raises PatternError."""
    return SchemaPattern(pattern)
