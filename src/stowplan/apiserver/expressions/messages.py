"""Texts that message expressions give.

Source: apiextensions-apiserver v0.36, pkg/apiserver/schema/cel/validation.go
(evalMessageExpression).
"""

from __future__ import annotations

from stowplan.cel.program import EvaluationOutcome

MESSAGE_BYTES_MAX = 5 * 1024


def message_of(found: EvaluationOutcome) -> str:
    """The text; "" where the expression failed or gave a text that is no message."""
    if found.error or not isinstance(found.value, str):
        return ""
    text = found.value.strip()
    if len(text.encode()) > MESSAGE_BYTES_MAX or "\n" in text:
        return ""
    return text
