"""Token and access reviews: authentication and authorization of a request by the API server.

Source: Kubernetes API v1.36, authentication.k8s.io/v1 and authorization.k8s.io/v1.
"""

from __future__ import annotations

from typing import Any

import msgspec

from stowplan.client.requests import JSON, ApiRequest
from stowplan.client.responses import ApiResponse, decode_body


class UserInfo(msgspec.Struct, frozen=True):
    """User that a token belongs to."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class _TokenStatus(msgspec.Struct, frozen=True):
    authenticated: bool = False
    user: UserInfo = UserInfo()


class _TokenReview(msgspec.Struct, frozen=True):
    status: _TokenStatus = _TokenStatus()


class _AccessStatus(msgspec.Struct, frozen=True):
    allowed: bool = False


class _AccessReview(msgspec.Struct, frozen=True):
    status: _AccessStatus = _AccessStatus()


def token_review(token: str) -> ApiRequest:
    """Request that asks the API server for the user of a token."""
    return _review_request(
        "authentication.k8s.io/v1", "TokenReview", "tokenreviews", {"token": token}
    )


def user_of_token_review(answer: ApiResponse) -> UserInfo | None:
    """User that the token belongs to; None for an invalid token or an unreadable response."""
    found = decode_body(answer.body, _TokenReview) if answer.is_done else None
    return found.status.user if found is not None and found.status.authenticated else None


def subject_access_review(user: UserInfo, path: str, verb: str = "get") -> ApiRequest:
    """Request that asks whether a user may access a non-resource path."""
    spec = {
        "user": user.username,
        "uid": user.uid,
        "groups": user.groups,
        "extra": user.extra,
        "nonResourceAttributes": {"path": path, "verb": verb},
    }
    version = "authorization.k8s.io/v1"
    return _review_request(version, "SubjectAccessReview", "subjectaccessreviews", spec)


def is_access_allowed(answer: ApiResponse) -> bool:
    """True when the review allows the access."""
    found = decode_body(answer.body, _AccessReview) if answer.is_done else None
    return found is not None and bool(found.status.allowed)


def _review_request(version: str, kind: str, plural: str, spec: dict[str, Any]) -> ApiRequest:
    body = {"kind": kind, "apiVersion": version, "spec": spec}
    path = f"/apis/{version}/{plural}"
    return ApiRequest("POST", path, (), msgspec.json.encode(body), JSON, timeout_s=10.0)
