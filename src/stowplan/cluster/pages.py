"""What pages that are no resources have in common: plain answers and the missing page.

Source: apiserver v0.36, server/mux/pathrecorder.go, as recorded.
"""

from __future__ import annotations

from urllib.parse import unquote

from stowplan.cluster.errors import method_not_allowed
from stowplan.cluster.negotiation import Form, check_routed, encoded, form_of
from stowplan.cluster.wire import Request, Response

Header = tuple[str, str]
Tree = dict[str, object]

TEXT: Header = ("Content-Type", "text/plain; charset=utf-8")
NO_SNIFF: Header = ("X-Content-Type-Options", "nosniff")
UNCACHED: Header = ("Cache-Control", "no-cache, private")
MISSING = Response(404, (TEXT, NO_SNIFF, UNCACHED), b"404 page not found\n")
"""What a path has that nothing serves."""


def path_of(request: Request) -> str:
    """The path, decoded, without slashes at its end; `/` for the root."""
    return unquote(request.path).rstrip("/") or "/"


def document(request: Request, tree: Tree) -> Response:
    """A tree in the form that the client takes. Raises ApiError 405, 406."""
    if request.method != "GET":
        raise method_not_allowed()
    check_routed(request, False)
    form = form_of(request, transforms=False)
    return shown(tree, form, UNCACHED)


def shown(tree: Tree, form: Form, *headers: Header) -> Response:
    """A tree in a form."""
    return Response(200, (("Content-Type", form.media), *headers), encoded(tree, form) + b"\n")


def plain(text: str, *headers: Header) -> Response:
    """A text."""
    return Response(200, (TEXT, *headers, UNCACHED), text.encode())
