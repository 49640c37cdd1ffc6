"""What an answer of the API server means: done, refused, to be tried again, or nobody knows.

A binding whose answer is lost may have been made. So the line runs between answers that say that
nothing was done, and all the others.

Source: Kubernetes API v1.36, Status and its reasons, as recorded.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec

THROTTLED_DELAY_S = 1.0
"""How long to wait after a 429 that does not say."""
MESSAGE_CHARS_MAX = 500
_GONE = ("Expired", "Gone")


class ResponseOutcome(Enum):
    """What came of a request."""

    DONE = "done"
    REFUSED = "refused"
    """Nothing was done, and the same request would be refused again."""
    THROTTLED = "throttled"
    """Nothing was done, as the server has too much to do."""
    OPEN = "open"
    """Nobody knows whether it was done."""


class ApiResponse(msgspec.Struct, frozen=True):
    """An HTTP answer. status: 0 for none, then `fault` says why. retry_after: in seconds, None
    where the server does not say."""

    status: int
    body: bytes = b""
    retry_after: float | None = None
    content_type: str = ""
    fault: str = ""

    @property
    def is_done(self) -> bool:
        """True for success."""
        return 200 <= self.status < 300

    @property
    def verdict(self) -> ResponseOutcome:
        """What came of the request."""
        if self.is_done:
            return ResponseOutcome.DONE
        if self.status == 429:
            return ResponseOutcome.THROTTLED
        if 300 <= self.status < 500 and self.status != 408:
            return ResponseOutcome.REFUSED
        return ResponseOutcome.OPEN


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """`details` of a Status. retry_after_seconds: 0 where it does not say."""

    name: str = ""
    group: str = ""
    kind: str = ""
    retry_after_seconds: int = 0


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """`metadata` of a list or a Status. token: where the next page begins."""

    resource_version: str = ""
    token: str = msgspec.field(default="", name="continue")


class ApiStatus(msgspec.Struct, frozen=True):
    """A Status, as the API server explains itself."""

    kind: str = ""
    message: str = ""
    reason: str = ""
    code: int = 0
    details: StatusDetails | None = None
    metadata: ListMeta = ListMeta()


_status = msgspec.json.Decoder(ApiStatus)


def status_of(body: bytes) -> ApiStatus | None:
    """The Status that a body holds; None for anything else, such as plain text."""
    try:
        found = _status.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.kind == "Status" else None


def error_message(answer: ApiResponse) -> str:
    """What went wrong, in the server's words where it has any."""
    if not answer.status:
        return answer.fault or "no answer"
    status = status_of(answer.body)
    if status is not None and status.message:
        return status.message
    text = answer.body[:MESSAGE_CHARS_MAX].decode(errors="replace").strip()
    return f"{answer.status} {text}".strip()


def is_expired(answer: ApiResponse) -> bool:
    """True where the version, or the rest of a list, is too old to be served."""
    status = None if answer.is_done else status_of(answer.body)
    return answer.status == 410 or (status is not None and is_expired_status(status))


def is_expired_status(status: ApiStatus) -> bool:
    """The same, of a Status that came in a watch."""
    return status.code == 410 or status.reason in _GONE


def is_unserved_resource(answer: ApiResponse) -> bool:
    """True where the server knows no such resource: a 404 in plain text, or one that names no
    object."""
    if answer.status != 404:
        return False
    status = status_of(answer.body)
    return status is None or status.details is None or not status.details.name


def is_streaming_list_refused(answer: ApiResponse) -> bool:
    """True where the answer to a streaming list says that there will be none: any definite one, as
    servers and what stands before them word it differently. Not a 401 (about who asks) or 410."""
    if answer.status in (500, 501):
        return True
    return (
        answer.verdict is ResponseOutcome.REFUSED
        and answer.status != 401
        and not is_expired(answer)
    )


def retry_delay_s(answer: ApiResponse) -> float:
    """How long to leave a server alone that has too much to do, in seconds."""
    if answer.retry_after is not None:
        return max(0.0, answer.retry_after)
    status = status_of(answer.body)
    details = status.details if status is not None else None
    said = details.retry_after_seconds if details is not None else 0
    return float(said) if said > 0 else THROTTLED_DELAY_S


def parse_retry_after(text: str | None) -> float | None:
    """The header Retry-After in seconds; None where it is absent or a date."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        return None
    return seconds if 0 <= seconds < 86_400 else None


def decode_body(body: bytes, kind: type[Any]) -> Any:
    """A body as a value of a kind, None where it is not one: cut off, or of another shape."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
