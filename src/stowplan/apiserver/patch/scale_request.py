"""PUT and PATCH of the scale subresource: the new scale of an object.

Source: apiserver v0.36, endpoints/handlers: update.go, patch.go.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import Any, Protocol

from stowplan.apis.machinery.http_messages import HttpRequest
from stowplan.apis.machinery.resource import ApiCall, Subresource
from stowplan.apiserver.apply.apply_patch import read_apply_body
from stowplan.apiserver.apply.scale_write import ScaleWrite
from stowplan.apiserver.http.body_decoding import decode_kind
from stowplan.apiserver.http.deferred_work import DeferredWork
from stowplan.apiserver.http.negotiation import JSON, YAML, body_media_type
from stowplan.apiserver.patch import patch_request
from stowplan.objects.encoding.tree import Tree

MakeScale = Callable[[Tree], Tree]


class Deferral(Protocol):
    """Work on a body, yielded if the body is long."""

    def __call__(
        self, work: Callable[[], Any], raw: bytes, media: str
    ) -> Generator[DeferredWork[Any], None, DeferredWork[Any]]: ...


def new_scale(
    request: HttpRequest,
    sub: Subresource,
    call: ApiCall,
    writing: ScaleWrite,
    force: bool,
    deferred: Deferral,
) -> Generator[DeferredWork[Any], None, MakeScale]:
    """How a request makes the new scale of an object."""
    raw, mode = request.body, call.field_validation
    schema, kind, version = sub.body_schema(call.resource)
    if call.verb != "patch":
        media, registry = body_media_type(request), call.objects.registry
        resource = call.resource
        work = partial(decode_kind, raw, media, resource, schema, registry, mode, kind, version)
        sent = yield from deferred(work, raw, media)
        return lambda old: _with_warnings(call, sent.result())
    if patch_request.is_apply(request):
        body = yield from deferred(partial(read_apply_body, raw), raw, YAML)
        return lambda old: writing.applied(old, body.result(), force)
    form = patch_request.patch_type(request, call.resource)
    patch = yield from deferred(partial(patch_request.decode_patch, raw, form, mode), raw, JSON)

    def patched(old: Tree) -> Tree:
        before = writing.scale_of(old)
        outcome = patch_request.apply_patch(before, patch.result(), form, schema, mode)
        return {**_with_warnings(call, outcome), "kind": kind, "apiVersion": version}

    return patched


def _with_warnings(call: ApiCall, outcome: tuple[Tree, list[str]]) -> Tree:
    new, warned = outcome
    call.warnings.extend(warned)
    return new
