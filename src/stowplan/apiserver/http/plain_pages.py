"""Responses of non-resource pages.

Source: apiserver v0.36, server/mux/pathrecorder.go, as recorded.
"""

from __future__ import annotations

from urllib.parse import unquote

from stowplan.apis.machinery.errors import method_not_allowed
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apiserver.http.negotiation import (
    JSON,
    PROTOBUF,
    ResponseForm,
    check_routed,
    encode_in_form,
    negotiate,
    path_not_acceptable,
)

Header = tuple[str, str]
Tree = dict[str, object]

TEXT: Header = ("Content-Type", "text/plain; charset=utf-8")
NO_SNIFF: Header = ("X-Content-Type-Options", "nosniff")
UNCACHED: Header = ("Cache-Control", "no-cache, private")
PAGE_NOT_FOUND = HttpResponse(404, (TEXT, NO_SNIFF, UNCACHED), b"404 page not found\n")
"""The response for a path that is not served."""


def decoded_path(request: HttpRequest) -> str:
    """The decoded path without trailing slashes; `/` for the root."""
    return unquote(request.path).rstrip("/") or "/"


def tree_response(request: HttpRequest, tree: Tree) -> HttpResponse:
    """A response with a tree in the form that the client accepts. Raises ApiError 405, 406."""
    if request.method != "GET":
        raise method_not_allowed()
    check_routed(request, False)
    form = negotiate(request, transforms=False)
    if form.media == PROTOBUF and "kind" not in tree:
        raise path_not_acceptable(watchable=False, media=JSON)
    return response_in_form(tree, form, UNCACHED)


def response_in_form(tree: Tree, form: ResponseForm, *headers: Header) -> HttpResponse:
    """A response with a tree in a form."""
    body = encode_in_form(tree, form)
    return HttpResponse(200, (("Content-Type", form.media), *headers), body)


def text_response(text: str, *headers: Header) -> HttpResponse:
    """A text response."""
    return HttpResponse(200, (TEXT, *headers, UNCACHED), text.encode())
