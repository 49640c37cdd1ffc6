"""Errors of regular expressions in Go's words.

Source: Go 1.26, regexp/syntax.
"""

from __future__ import annotations

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


def go_pattern_error(message: str, pattern: str) -> str:
    """Go's error for an error of RE2 such as `missing ]: [a`."""
    if message.startswith("pattern too large"):
        return f"expression too large: `{pattern}`"
    problem, _, part = message.partition(": ")
    return f"{_GO_TEXTS.get(problem, problem)}: `{part}`"
