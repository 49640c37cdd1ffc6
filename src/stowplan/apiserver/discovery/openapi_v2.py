"""`/openapi/v2`: an empty document with title and version.

kubectl fetches it before it applies a list, or an object of a custom kind a second time, and
continues if a kind is missing. The schemas are under `/openapi/v3`.

Source: gnostic, openapiv2/OpenAPIv2.proto (field numbers); media types and headers as recorded.
"""

from __future__ import annotations

import hashlib

import msgspec

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User
from stowplan.apis.machinery.resource import ServerContext
from stowplan.apiserver.http.negotiation import PROTOBUF

PATH = "/openapi/v2"
TITLE, VERSION = "Kubernetes", "1.36"
_JSON = "application/json"
_PROTOBUF_ACCEPT = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
_PROTOBUF_MEDIA = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


def _field(number: int, content: bytes) -> bytes:
    return bytes((number << 3 | 2, len(content))) + content


_TREE = {"swagger": "2.0", "info": {"title": TITLE, "version": VERSION}, "paths": {}}
_INFO = _field(1, TITLE.encode()) + _field(2, VERSION.encode())
_BODIES = {
    _JSON: msgspec.json.encode(_TREE),
    _PROTOBUF_MEDIA: _field(1, b"2.0") + _field(2, _INFO) + _field(8, b""),
}
_ETAG = hashlib.sha512(_BODIES[_JSON]).hexdigest().upper()


class OpenApiV2Page:
    """`options.NonResourcePages` of `/openapi/v2`."""

    def answer(
        self, request: HttpRequest, user: User, server: ServerContext, now: float
    ) -> HttpResponse | None:
        if request.path.rstrip("/") != PATH or request.method not in ("GET", "HEAD"):
            return None
        tag = f'"{_ETAG}"'
        headers = (("Etag", tag), ("Vary", "Accept"), ("Cache-Control", "no-cache, private"))
        if request.headers.get("if-none-match") == tag:
            return HttpResponse(304, headers)
        accepted = request.headers.get("accept", "")
        if accepted.split(";", 1)[0].strip() == PROTOBUF:
            # Objects are written so, but no document.
            return HttpResponse(406, (("Cache-Control", "no-cache, private"),))
        media = (
            _PROTOBUF_MEDIA
            if _PROTOBUF_ACCEPT in accepted or _PROTOBUF_MEDIA in accepted
            else _JSON
        )
        body = b"" if request.method == "HEAD" else _BODIES[media]
        return HttpResponse(200, (("Content-Type", media), *headers), body)
