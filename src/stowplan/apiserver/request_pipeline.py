"""Request pipeline: routing, access control, negotiation, and the verbs.

Source: apiserver v0.36, endpoints/installer.go and endpoints/handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from copy import copy
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from stowplan.apis.admissionregistration.webhook_calls import SKIPPED
from stowplan.apis.machinery.errors import (
    ApiError,
    method_not_allowed,
    no_such_path,
    not_found,
    too_many_requests,
)
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User, WatchResponse
from stowplan.apis.machinery.object_selector import ObjectSelector
from stowplan.apis.machinery.resource import (
    ApiCall,
    Resource,
    ResourceStrategy,
    Subresource,
)
from stowplan.apis.machinery.stored_form import (
    as_served,
    as_served_tree,
    as_stored_tree,
    decode,
    encode,
    list_body,
    under_current_schema,
)
from stowplan.apis.protobuf.object_codec import object_codec
from stowplan.apis.schema.json_parser import LONG_BYTES
from stowplan.apiserver.apply.apply_patch import read_apply_body
from stowplan.apiserver.apply.scale_write import ScaleWrite
from stowplan.apiserver.auth.request_info import (
    RequestInfo,
    attributes_of_info,
    parse_request_path,
    verb_of,
)
from stowplan.apiserver.http import connect
from stowplan.apiserver.http.body_decoding import (
    body_too_large,
    decode_delete_options,
    decode_kind,
    decode_object,
    inline_bytes_max,
    kind_check,
)
from stowplan.apiserver.http.deferred_work import DeferredWork, RequestSteps
from stowplan.apiserver.http.negotiation import (
    JSON,
    PLAIN_JSON,
    PROTOBUF,
    WATCH_PROTOBUF,
    YAML,
    ResponseForm,
    body_media_type,
    check_routed,
    headers_of,
    in_form,
    negotiate,
    not_acceptable,
)
from stowplan.apiserver.http.plain_pages import PAGE_NOT_FOUND
from stowplan.apiserver.http.request_options import (
    ListOptions,
    QueryParameters,
    given_delete_options,
    given_options,
    list_options,
    manager_name,
    object_selector,
    parse_resource_version,
    reject_export,
    write_options,
)
from stowplan.apiserver.http.tables import include_object_policy, transformed, transformed_list
from stowplan.apiserver.http.warnings import WarningList, quoted_text
from stowplan.apiserver.http.webhook_rounds import WebhookRounds
from stowplan.apiserver.patch import patch_request
from stowplan.apiserver.patch.patched_object import (
    PatchedObject,
    applied_object,
    set_namespace_and_check,
)
from stowplan.apiserver.patch.scale_request import new_scale
from stowplan.apiserver.server_state import ServerState
from stowplan.apiserver.storage.paged_lists import ListResult, list_key_prefix
from stowplan.apiserver.storage.paged_lists import resource_version_too_large as version_too_large
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions

T = TypeVar("T")

YAML_BYTES_MAX = 512 << 10
"""Encoding YAML takes more than a second of processor time per MB. Differs: no limit there."""
OPTIONS_KINDS = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


class RequestPipeline:
    """One request in progress."""

    def __init__(self, server: ServerState, request: HttpRequest, now: float) -> None:
        self.server = server
        self.request = request
        self.now = self.received = now
        self.begun = 0.0
        self.query = QueryParameters(request.query)
        self.form: ResponseForm = PLAIN_JSON
        self._has_messages = True
        self.warnings = WarningList()
        self._dressing: ResponseForm | None = None
        self.user: User
        self.known_user: User | None = None
        self.route: RequestInfo | None = None
        self._rounds = WebhookRounds(server)
        self._deleted_page: ListResult | None = None
        self._n_deleted = 0

    def answer(self) -> RequestSteps:
        """The response, errors included."""
        try:
            again = partial(self._begin_again, self.now)
            made = yield from self._rounds.of(self._answer, again)
        except ApiError as error:
            made = self.refusal(error)
        if self._dressing is not None and isinstance(made, HttpResponse):
            later = DeferredWork(partial(in_form, made.body, self._dressing))
            yield later
            made = replace(made, body=later.result())
        if self.request.method == "HEAD" and isinstance(made, HttpResponse):
            return replace(made, body=b"")
        return made

    def _begin_again(self, started: float) -> None:
        """What a further round with answers of webhooks begins with."""
        self.now, self.warnings, self._dressing = started, WarningList(), None

    def _in_form(self, value: bytes, form: ResponseForm) -> bytes:
        """JSON bytes in the form of the response; long ones are converted at the end."""
        if len(value) <= LONG_BYTES or (form.media == JSON and not form.pretty):
            return in_form(value, form)
        long = len(value) > YAML_BYTES_MAX and self.request.method == "GET"
        if form.media == YAML and long:
            raise not_acceptable(
                f"the answer is too long for YAML (limit {YAML_BYTES_MAX} bytes of JSON)"
            )
        self._dressing = form
        return value

    def _deferred(
        self, work: Callable[[], T], raw: bytes, media: str
    ) -> Generator[DeferredWork[Any], None, DeferredWork[T]]:
        """Work on a body: yielded if the body is long, else done when the result is read."""
        later = DeferredWork(work)
        if len(raw) > inline_bytes_max(media):
            registry, route = self.server.registry, parse_request_path(self.request.path)
            before = route and registry.find(route.group, route.version, route.plural)
            yield later
            if route and registry.find(route.group, route.version, route.plural) is not before:
                raise too_many_requests("the definition of the kind has changed, try again", 1)
        return later

    def refusal(self, error: ApiError) -> HttpResponse:
        """A Status object, in the form that the client accepts."""
        form = self.form
        if form is PLAIN_JSON:
            try:
                form = negotiate(self.request)
            except ApiError:
                form = PLAIN_JSON
        self._dressing = None
        if error.code == 405:
            # The original has no handler there that could warn.
            self.warnings = WarningList()
        form = ResponseForm(form.media, form.pretty)
        value = encode(error.status())
        if len(value) > LONG_BYTES:
            # Other forms than JSON are too slow for an error of many causes.
            form = PLAIN_JSON
        body = in_form(value, form)
        headers = (*self._headers(form), *error.headers)
        return HttpResponse(error.code, headers, body, after=error.after)

    def _headers(self, form: ResponseForm) -> tuple[tuple[str, str], ...]:
        headers = headers_of(form.media)
        if not self.warnings:
            return headers
        texts = self.warnings.header_texts()
        return (*headers, *(("Warning", f"299 - {quoted_text(text)}") for text in texts))

    def _answer(self) -> RequestSteps:
        server, request, now = self.server, self.request, self.now
        access = server.options.access
        self.user = self.known_user = access.authenticate(request, now)
        access.flow(self.user, request, now)
        route = parse_request_path(request.path)
        access.authorize(self.user, attributes_of_info(request, route))
        if route is not None and not route.broken:
            resource = server.registry.find(route.group, route.version, route.plural)
            if resource is not None:
                self.route = route
                if resource.deprecation:
                    self.warnings.append(resource.deprecation)
                return (yield from self._resource(route, resource))
        for pages in server.options.pages:
            page = pages.answer(request, self.user, server, now)
            if page is not None:
                return page
        raise no_such_path()

    def _negotiated(self, watch: bool = False, tables: bool = True) -> ResponseForm:
        return negotiate(self.request, watch=watch, has_messages=self._has_messages, tables=tables)

    def _resource(self, route: RequestInfo, resource: Resource) -> RequestSteps:
        self._has_messages = not resource.custom and object_codec().has_messages(
            resource.api_version, resource.kind
        )
        if route.subresource in connect.CONNECT_SUBRESOURCES and connect.is_connect(
            route, resource
        ):
            return connect.connect_response(
                self.server, route, resource, self.request.method, self.query
            )
        misplaced = route.rest or (route.namespace and not resource.namespaced)
        if misplaced or (route.name and resource.namespaced and not route.namespace):
            return self._missing(resource)
        if route.subresource:
            sub = resource.subresources.get(route.subresource)
            if sub is None or route.watch:
                if resource.custom:
                    raise not_found(resource.group, resource.plural, route.name)
                raise no_such_path()
            return (yield from self._subresource(route, resource, sub))
        verb = verb_of(self.request.method, route, resource)
        if verb not in resource.verbs:
            raise method_not_allowed()
        if verb in ("create", "deletecollection") and resource.namespaced and not route.namespace:
            if resource.custom:
                return PAGE_NOT_FOUND
            raise method_not_allowed()
        if verb == "patch":
            patch_request.patch_type(self.request, resource)
        check_routed(self.request, verb in ("list", "watch") and "watch" in resource.verbs)
        if verb == "get":
            return self._get(route, resource)
        if verb in ("list", "watch"):
            return self._collection(route, resource)
        if verb == "deletecollection":
            return (yield from self._delete_collection(route, resource))
        if verb == "delete":
            return (yield from self._delete(route, resource))
        if resource.act is not None:
            return (yield from self._act(route, resource, None))
        return (yield from self._write(verb, route, resource, None))

    def _missing(self, resource: Resource) -> HttpResponse:
        """404 of a path that a kind does not have. Raises ApiError for built-in kinds."""
        if resource.custom:
            return PAGE_NOT_FOUND
        raise no_such_path()

    def _call(self, verb: str, route: RequestInfo, resource: Resource) -> ApiCall:
        applies = verb == "patch" and patch_request.is_apply(self.request)
        options = None
        if verb in OPTIONS_KINDS:
            options = write_options(self.query, OPTIONS_KINDS[verb], applies)
        return ApiCall(
            self.server,
            self.user,
            verb,
            resource,
            route.namespace,
            route.name,
            route.subresource,
            self.now,
            options.dry_run if options else False,
            options.field_validation if options else "Warn",
            self.warnings,
            manager_name(options, self.request.headers.get("user-agent", "")),
            rng=self._rounds.generator(),
            access=self.server.options.access,
            options=given_options(self.query),
            answers=self._rounds.answers,
            parts=verb != "patch" or b"managedFields" not in self.request.body,
        )

    def _body(self) -> bytes:
        limit = self.server.options.body_bytes_max
        if len(self.request.body) > limit:
            raise body_too_large(limit)
        return self.request.body

    # Responses

    def _include_object(self) -> str:
        """The parameter includeObject, which only tables have. Raises ApiError 400."""
        is_table = self.form.kind == "Table"
        return include_object_policy(self.query.text("includeObject")) if is_table else ""

    def _object(
        self, resource: Resource, obj: Tree, code: int = 200, raw: bytes = b""
    ) -> HttpResponse:
        """One object. raw: its stored bytes, if they are known and the same."""
        form = self.form
        if form.kind and obj.get("kind") != "Status":
            tree = transformed(resource, obj, form, self._include_object(), self.now)
            body = self._in_form(encode(tree), form)
        else:
            body = self._in_form(raw or encode(obj), form)
        return HttpResponse(code, self._headers(form), body, self.server.unsaved_number)

    def _get(self, route: RequestInfo, resource: Resource) -> HttpResponse:
        self.form = self._negotiated()
        reject_export(self.query)
        wanted = parse_resource_version(self.query.text("resourceVersion"))
        store = self.server.store
        if wanted > store.version:
            raise version_too_large(wanted, store.version, self.server.options.future_s)
        value = store.get(resource.key(route.namespace, route.name))
        if value is None:
            raise not_found(resource.group, resource.plural, route.name)
        value = as_served(resource, value)
        return self._object(resource, decode(value) if self.form.kind else {}, raw=value)

    def _collection(self, route: RequestInfo, resource: Resource) -> HttpResponse | WatchResponse:
        self.form = self._negotiated()
        requested = list_options(self.query)
        if requested.watch or route.watch:
            self.form = self._negotiated(watch=True)
            if "watch" not in resource.verbs:
                raise method_not_allowed()
            selection = object_selector(resource, requested, route.name)
            return self._watch(resource, route.namespace, requested, selection)
        selection = object_selector(resource, requested)
        if selection.namespace is not None and resource.namespaced and not route.namespace:
            # Only this namespace can match, and its keys are consecutive.
            page = self.server.lists.page(resource, selection.namespace, requested, selection)
        else:
            page = self.server.lists.page(resource, route.namespace, requested, selection)
        return self._list(resource, page)

    def _watch(
        self, resource: Resource, namespace: str, requested: ListOptions, selection: ObjectSelector
    ) -> WatchResponse:
        include = self._include_object()
        watcher = self.server.watch(resource, namespace, requested, selection, self.form, self.now)
        watcher.include = include
        form = self.form
        if form.media == PROTOBUF:
            form = replace(form, media=WATCH_PROTOBUF)
        return WatchResponse(200, self._headers(form), watcher.number)

    def _list(self, resource: Resource, page: ListResult) -> HttpResponse:
        form = self.form
        commit = self.server.unsaved_number
        if form.kind:
            include = self._include_object()
            objects = [decode(as_served(resource, value)) for value in page.values]
            tree = transformed_list(resource, objects, page.meta(), form, include, self.now)
            return HttpResponse(200, self._headers(form), self._in_form(encode(tree), form), commit)
        head = {
            "kind": resource.list_kind or resource.kind + "List",
            "apiVersion": resource.api_version,
            "metadata": {"continue": "", **page.meta()} if resource.custom else page.meta(),
        }
        body = self._in_form(list_body(resource, encode(head), page.values), form)
        return HttpResponse(200, self._headers(form), body, commit)

    # Writes

    def _write(
        self, verb: str, route: RequestInfo, resource: Resource, sub: Subresource | None
    ) -> RequestSteps:
        self.form = self._negotiated()
        if verb == "create":
            return (yield from self._create(route, resource))
        raw = self._body()
        call = self._call(verb, route, resource)
        strategy = sub.strategy if sub is not None else None
        if verb == "patch":
            kind = patch_request.patch_type(self.request, resource)
            if kind == patch_request.APPLY_PATCH:
                return (yield from self._apply(raw, call, strategy))
            mode = call.field_validation
            patch = yield from self._deferred(
                partial(patch_request.decode_patch, raw, kind, mode), raw, JSON
            )
            call = call.at(self.now)
            make = PatchedObject(
                call, raw, kind, patch.result, kind_check(resource, self.server.registry)
            ).make
            obj, created = self.server.writes.update(call, make, "", strategy)
        else:
            media = body_media_type(self.request)
            work = self._body_reader(raw, media, resource, call)
            new, warned = (yield from self._deferred(work, raw, media)).result()
            call = call.at(self.now)
            call.warnings.extend(warned)
            new.setdefault("metadata", {})
            set_namespace_and_check(new, call)
            uid = new["metadata"].get("uid", "")
            kept = as_stored_tree(resource, new)
            obj, created = self.server.writes.update(call, kept, uid, strategy)
        code = 201 if created else 200
        return self._object(
            resource, as_served_tree(resource, obj), code, self._stored_bytes(resource)
        )

    def _create(self, route: RequestInfo, resource: Resource) -> RequestSteps:
        media, raw, server = body_media_type(self.request), self._body(), self.server
        if not self.form.kind and self._rounds.answers in (None, SKIPPED) and not self.warnings:
            known = server.repeated.stored(
                self.request, self.user, resource, route.namespace, self.now
            )
            if known is not None:
                return self._object(resource, {}, 201, as_served(resource, known))
        call = self._call("create", route, resource)
        work = self._body_reader(raw, media, resource, call)
        obj, warned = (yield from self._deferred(work, raw, media)).result()
        call = call.at(self.now)
        call.warnings.extend(warned)
        stored = server.repeated.create(self.request, call, as_stored_tree(resource, obj))
        return self._object(
            resource, as_served_tree(resource, stored), 201, self._stored_bytes(resource)
        )

    def _apply(self, raw: bytes, call: ApiCall, strategy: ResourceStrategy | None) -> RequestSteps:
        """Server-side apply."""
        resource = call.resource
        body = yield from self._deferred(partial(read_apply_body, raw), raw, YAML)
        call = call.at(self.now)
        fields = self.server.writes.fields
        make = applied_object(call, fields, body.result(), bool(self.query.flag("force")))
        obj, created = self.server.writes.update(call, make, "", strategy, applies=True)
        code = 201 if created else 200
        return self._object(
            resource, as_served_tree(resource, obj), code, self._stored_bytes(resource)
        )

    def _body_reader(
        self, raw: bytes, media: str, resource: Resource, call: ApiCall
    ) -> Callable[[], tuple[Tree, list[str]]]:
        registry, mode = self.server.registry, call.field_validation
        known = self.server.writes.parted.entries(call) if call.verb == "update" else None
        return partial(decode_object, raw, media, resource, registry, mode, known)

    def _stored_bytes(self, resource: Resource) -> bytes:
        """The bytes that the write has stored, as served; empty if it stored nothing."""
        packed = self.server.writes.packed
        return as_served(resource, packed) if packed else b""

    def _delete(self, route: RequestInfo, resource: Resource) -> RequestSteps:
        self.form = self._negotiated()
        raw = self._body()
        media = self._media(raw)
        work = partial(decode_delete_options, raw, media, self.query)
        requested, dry_run, orphan = (yield from self._deferred(work, raw, media)).result()
        call = self._deletion_call(route, resource, "delete", dry_run, requested)
        outcome = self.server.writes.delete(call, requested)
        code = 202 if not outcome.at_once and orphan is False else 200
        return self._object(resource, outcome.body, code)

    def _media(self, raw: bytes) -> str:
        return body_media_type(self.request) if raw else ""

    def _deletion_call(
        self,
        route: RequestInfo,
        resource: Resource,
        verb: str,
        dry_run: bool,
        requested: DeleteOptions,
    ) -> ApiCall:
        return ApiCall(
            self.server,
            self.user,
            verb,
            resource,
            route.namespace,
            route.name,
            now=self.now,
            dry_run=dry_run,
            warnings=self.warnings,
            rng=self._rounds.generator(),
            access=self.server.options.access,
            options=given_delete_options(requested, dry_run),
            answers=self._rounds.answers,
        )

    def _delete_collection(self, route: RequestInfo, resource: Resource) -> RequestSteps:
        self.form = self._negotiated()
        listing: ListOptions = list_options(self.query)
        selection = object_selector(resource, listing)
        raw = self._body()
        media = self._media(raw)
        work = partial(decode_delete_options, raw, media, self.query)
        requested, dry_run, _ = (yield from self._deferred(work, raw, media)).result()
        # A further round, with answers of webhooks, goes on where the one before ended.
        listed = self.server.lists.page(resource, route.namespace, listing, selection)
        page = self._deleted_page = self._deleted_page or listed
        prefix = list_key_prefix(resource, route.namespace)
        for value in page.values[self._n_deleted :]:
            meta = decode(value)["metadata"]
            if self.server.store.get(prefix + meta["name"]) is None:
                self._n_deleted += 1
                continue
            one = RequestInfo(
                route.group, route.version, route.plural, meta.get("namespace", ""), meta["name"]
            )
            call = self._deletion_call(one, resource, "deletecollection", dry_run, requested)
            # The deletion changes the options for one object.
            self.server.writes.delete(call, copy(requested))
            self._n_deleted += 1
        return self._list(resource, page)

    # Subresources

    def _subresource(
        self, route: RequestInfo, resource: Resource, sub: Subresource
    ) -> RequestSteps:
        verb = {"GET": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}.get(
            self.request.method, ""
        )
        if verb not in sub.verbs:
            raise method_not_allowed()
        if verb == "patch":
            patch_request.patch_type(self.request, resource)
        check_routed(self.request, False)
        if sub.act is not None:
            return (yield from self._act(route, resource, sub))
        if sub.view is not None:
            return (yield from self._view(verb, route, resource, sub))
        if verb == "get":
            return self._get(route, resource)
        return (yield from self._write(verb, route, resource, sub))

    def _act(self, route: RequestInfo, resource: Resource, sub: Subresource | None) -> RequestSteps:
        self.form = self._negotiated(tables=False)
        media, raw = body_media_type(self.request), self._body()
        call = self._call("create", route, resource)
        work = partial(self._decode_action, raw, media, resource, sub, call.field_validation)
        body, warned = (yield from self._deferred(work, raw, media)).result()
        call = call.at(self.now)
        call.warnings.extend(warned)
        outcome = self.server.act_on(call, sub, body)
        return self._object(resource, outcome.body, outcome.code)

    def _decode_action(
        self, raw: bytes, media: str, resource: Resource, sub: Subresource | None, mode: str
    ) -> tuple[Tree, list[str]]:
        registry = self.server.registry
        if sub is None:
            return decode_object(raw, media, resource, registry, mode)
        plain = sub.plain(raw) if sub.plain is not None and media == JSON else None
        if plain is not None:
            return plain, []
        schema, kind, version = sub.body_schema(resource)
        return decode_kind(raw, media, resource, schema, registry, mode, kind, version)

    def _view(
        self, verb: str, route: RequestInfo, resource: Resource, sub: Subresource
    ) -> RequestSteps:
        view = sub.view
        if view is None:
            raise no_such_path()
        self.form = self._negotiated()
        self._body()
        call = self._call(verb, route, resource)
        value = self.server.store.get(resource.key(route.namespace, route.name))
        if value is None:
            raise not_found(resource.group, resource.plural, route.name)
        if verb == "get":
            return self._object(
                resource, view.read(decode(under_current_schema(resource, value)), call)
            )
        writing = ScaleWrite(view, call, self.server.writes.fields)
        force = bool(self.query.flag("force"))
        make_new = yield from new_scale(self.request, sub, call, writing, force, self._deferred)
        is_apply = verb == "patch" and patch_request.is_apply(self.request)

        def make(old: Tree) -> Tree:
            new = make_new(old)
            set_namespace_and_check(new, call)
            return writing.written(old, new, is_apply)

        obj, _ = self.server.writes.update(call, make, tracks=False)
        return self._object(resource, view.read(obj, call))
