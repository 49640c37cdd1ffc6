"""Meaning of API server responses: done, refused, throttled, or outcome unknown.

A binding whose response is lost may have been made. So responses that say that nothing was done are
kept apart from all others.

Source: Kubernetes API v1.36, Status and its reasons, as recorded.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

THROTTLED_DELAY_S = 1.0
"""Delay after a 429 without Retry-After, in seconds."""
MESSAGE_CHARS_MAX = 500
_GONE = ("Expired", "Gone")


class ResponseOutcome(Enum):
    """Outcome of a request."""

    DONE = "done"
    REFUSED = "refused"
    """Nothing was done, and the same request would be refused again."""
    THROTTLED = "throttled"
    """Nothing was done, because the server is overloaded."""
    OPEN = "open"
    """It is unknown whether the request was executed."""


class ApiResponse(msgspec.Struct, frozen=True):
    """An HTTP response. status: 0 if there was none, then `fault` says why. retry_after: in
    seconds, None if absent."""

    status: int
    body: bytes = b""
    retry_after: float | None = None
    content_type: str = ""
    fault: str = ""

    @property
    def is_done(self) -> bool:
        """True for a status of 2xx."""
        return 200 <= self.status < 300

    @property
    def verdict(self) -> ResponseOutcome:
        """Outcome of the request."""
        if self.is_done:
            return ResponseOutcome.DONE
        if self.status == 429:
            return ResponseOutcome.THROTTLED
        if 300 <= self.status < 500 and self.status != 408:
            return ResponseOutcome.REFUSED
        return ResponseOutcome.OPEN


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """`details` of a Status. retry_after_seconds: 0 if absent."""

    name: str = ""
    group: str = ""
    kind: str = ""
    retry_after_seconds: int = 0


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """`metadata` of a list or a Status. token: continue token of the next page."""

    resource_version: str = ""
    token: str = msgspec.field(default="", name="continue")


class ApiStatus(msgspec.Struct, frozen=True):
    """A Status object of the API server."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None
    metadata: ListMeta = ListMeta()


_status = msgspec.json.Decoder(ApiStatus)


def status_of(body: bytes) -> ApiStatus | None:
    """The Status in a body; None for anything else, such as plain text."""
    try:
        found = _status.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.kind == "Status" else None


def error_message(answer: ApiResponse) -> str:
    """Error of a response, in the server's words if there are any."""
    if not answer.status:
        return answer.fault or "no response"
    status = status_of(answer.body)
    if status is not None and status.message:
        return status.message
    text = answer.body[:MESSAGE_CHARS_MAX].decode(errors="replace").strip()
    return f"{answer.status} {text}".strip()


def is_expired(answer: ApiResponse) -> bool:
    """True when the resource version or the continue token has expired."""
    status = None if answer.is_done else status_of(answer.body)
    return answer.status == 410 or (status is not None and is_expired_status(status))


def is_expired_status(status: ApiStatus) -> bool:
    """The same for a Status in a watch."""
    return status.code == 410 or status.reason in _GONE


def is_unserved_resource(answer: ApiResponse) -> bool:
    """True when the server does not serve the resource: a 404 in plain text, or one that names no
    object."""
    if answer.status != 404:
        return False
    status = status_of(answer.body)
    return status is None or status.details is None or not status.details.name


def is_streaming_list_refused(answer: ApiResponse) -> bool:
    """True when the server refuses streaming lists: any definite refusal counts, because servers
    and proxies word it differently. Not a 401 (authentication) or 410 (expired)."""
    if answer.status in (500, 501):
        return True
    return (
        answer.verdict is ResponseOutcome.REFUSED
        and answer.status != 401
        and not is_expired(answer)
    )


def retry_delay_s(answer: ApiResponse) -> float:
    """Delay before the next request to a throttling server, in seconds."""
    if answer.retry_after is not None:
        return max(0.0, answer.retry_after)
    status = status_of(answer.body)
    details = status.details if status is not None else None
    delay_s = details.retry_after_seconds if details is not None else 0
    return float(delay_s) if delay_s > 0 else THROTTLED_DELAY_S


def parse_retry_after(text: str | None) -> float | None:
    """Seconds of a Retry-After header; None if absent or a date."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < 86_400 else None


def excerpt(data: bytes, bytes_max: int = 200) -> str:
    """The beginning of a body, quoted, for an error message."""
    text = repr(data[:bytes_max].decode(errors="replace"))
    rest = len(data) - bytes_max
    noun = "byte" if rest == 1 else "bytes"
    return f"{text} and {rest} more {noun}" if rest > 0 else text


def decode_body(body: bytes, kind: type[Any]) -> Any:
    """Decode a body to a type; None if it does not match."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
