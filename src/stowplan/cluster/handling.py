"""Requests to answers: routing, rights, negotiation, and the verbs.

Source: apiserver v0.36, endpoints/installer.go and endpoints/handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from copy import copy
from dataclasses import replace as replace_call
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec.structs import replace

from stowplan.cluster import patches
from stowplan.cluster.asking import (
    ListOptions,
    Query,
    list_options,
    refuse_export,
    selection_of,
    version_of,
    write_options,
)
from stowplan.cluster.bodies import mismatch, read_deletion, read_kind, read_object, too_large
from stowplan.cluster.canonical import current, decode, encode, item, served
from stowplan.cluster.errors import (
    ApiError,
    Tree,
    method_not_allowed,
    no_such_path,
    not_found,
    too_many_requests,
)
from stowplan.cluster.later import Later, Steps
from stowplan.cluster.listing import Page, prefix_of
from stowplan.cluster.listing import too_large as version_too_large
from stowplan.cluster.meta import place
from stowplan.cluster.negotiation import (
    JSON,
    PLAIN,
    YAML,
    Form,
    body_type,
    check_routed,
    dressed,
    form_of,
    refused,
)
from stowplan.cluster.pages import MISSING
from stowplan.cluster.resource import Call, Resource, Schema, Subresource
from stowplan.cluster.routes import Route, route_of, wanted_by
from stowplan.cluster.schema.parse import LONG_BYTES
from stowplan.cluster.selecting import Selection
from stowplan.cluster.subresources import kubelet
from stowplan.cluster.tables import included, transformed, transformed_list
from stowplan.cluster.warnings import Warnings
from stowplan.cluster.wire import Request, Response, Stream, User
from stowplan.cluster.writes import check_name

if TYPE_CHECKING:
    from stowplan.cluster.server import ApiServer

T = TypeVar("T")

YAML_BYTES_MAX = 512 << 10
"""Writing YAML takes more than a second of processor time per MB. Differs: no limit there."""
UNCACHED = ("Cache-Control", "no-cache, private")
OPTIONS_KIND = {"create": "CreateOptions", "update": "UpdateOptions", "patch": "PatchOptions"}


class Exchange:
    """One request being answered."""

    def __init__(self, server: ApiServer, request: Request, now: float) -> None:
        self.server = server
        self.request = request
        self.now = now
        self.query = Query(request.query)
        self.form: Form = PLAIN
        self.warnings = Warnings()
        self._dressing: Form | None = None
        self.user: User

    def answer(self) -> Steps:
        """The answer; refusals included."""
        try:
            made = yield from self._answer()
        except ApiError as error:
            made = self.refusal(error)
        if self._dressing is not None and isinstance(made, Response):
            later = Later(partial(dressed, made.body, self._dressing))
            yield later
            made = replace(made, body=later.result())
        if self.request.method == "HEAD" and isinstance(made, Response):
            return replace(made, body=b"")
        return made

    def _dressed(self, value: bytes, form: Form) -> bytes:
        """JSON bytes in the form of the answer; if that takes long, they become so at the end."""
        if len(value) <= LONG_BYTES or (form.media == JSON and not form.pretty):
            return dressed(value, form)
        long = len(value) > YAML_BYTES_MAX and self.request.method == "GET"
        if form.media == YAML and long:
            raise refused(f"the answer is too long for YAML (limit {YAML_BYTES_MAX} bytes of JSON)")
        self._dressing = form
        return value

    def _later(
        self, work: Callable[[], T], raw: bytes, media: str
    ) -> Generator[Later[Any], None, Later[T]]:
        """Work on a body: handed out if the body is long, else done here when it is asked for."""
        later = Later(work)
        # Other forms than JSON take ten times as long.
        if len(raw) > (LONG_BYTES if media == JSON else LONG_BYTES // 8):
            registry, route = self.server.registry, route_of(self.request.path)
            before = route and registry.find(route.group, route.version, route.plural)
            yield later
            if route and registry.find(route.group, route.version, route.plural) is not before:
                raise too_many_requests("the definition of the kind has changed, try again", 1)
        return later

    def refusal(self, error: ApiError) -> Response:
        """A Status object, in the form that the client takes."""
        form = self.form
        if form is PLAIN:
            try:
                form = form_of(self.request)
            except ApiError:
                form = PLAIN
        self._dressing = None
        form = Form(form.media, form.pretty)
        value = encode(error.status())
        if len(value) > LONG_BYTES:
            # A refusal of many causes is not worth the time that another form takes.
            form = PLAIN
        body = dressed(value, form)
        headers = (*self._headers(form), *error.headers)
        return Response(error.code, headers, body, after=error.after)

    def _headers(self, form: Form) -> tuple[tuple[str, str], ...]:
        warned = (("Warning", f"299 - {_quoted(text)}") for text in self.warnings.shown())
        return (("Content-Type", form.media), UNCACHED, *warned)

    def _answer(self) -> Steps:
        server, request, now = self.server, self.request, self.now
        access = server.options.access
        self.user = access.identify(request, now)
        access.flow(self.user, request, now)
        route = route_of(request.path)
        access.authorize(self.user, wanted_by(request, route))
        if route is not None and not route.broken:
            resource = server.registry.find(route.group, route.version, route.plural)
            if resource is not None:
                if resource.deprecation:
                    self.warnings.append(resource.deprecation)
                return (yield from self._resource(route, resource))
        for pages in server.options.pages:
            page = pages.answer(request, self.user, server, now)
            if page is not None:
                return page
        raise no_such_path()

    def _resource(self, route: Route, resource: Resource) -> Steps:
        misplaced = route.rest or (route.namespace and not resource.namespaced)
        if misplaced or (route.name and resource.namespaced and not route.namespace):
            return self._missing(resource)
        if route.subresource:
            sub = resource.subresources.get(route.subresource)
            if sub is None or route.watch:
                if resource.custom:
                    raise not_found(resource.group, resource.plural, route.name)
                if _is_of_kubelet(route, resource):
                    return self._of_kubelet(route, resource)
                raise no_such_path()
            return (yield from self._subresource(route, resource, sub))
        verb = self._verb(route, resource)
        if verb not in resource.verbs:
            raise method_not_allowed()
        if verb in ("create", "deletecollection") and resource.namespaced and not route.namespace:
            if resource.custom:
                return MISSING
            raise method_not_allowed()
        if verb == "patch":
            patches.patch_type(self.request, resource)
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

    def _missing(self, resource: Resource) -> Response:
        """A path that a kind does not have. Raises ApiError 404."""
        if resource.custom:
            return MISSING
        raise no_such_path()

    def _verb(self, route: Route, resource: Resource) -> str:
        """What the method means here; "" for one that means nothing."""
        method = self.request.method
        if method == "GET":
            if route.watch:
                return "watch"
            if resource.act is not None:
                return ""
            return "get" if route.name else "list"
        if method == "DELETE":
            return "delete" if route.name else "deletecollection"
        if method == "POST":
            if route.name and resource.act is not None:
                raise no_such_path()
            return "" if route.name else "create"
        if method in ("PUT", "PATCH") and route.name:
            return "update" if method == "PUT" else "patch"
        return ""

    def _call(self, verb: str, route: Route, resource: Resource) -> Call:
        options = write_options(self.query, OPTIONS_KIND[verb]) if verb in OPTIONS_KIND else None
        return Call(
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
        )

    def _body(self) -> bytes:
        limit = self.server.options.body_bytes_max
        if len(self.request.body) > limit:
            raise too_large(limit)
        return self.request.body

    # Answers

    def _object(self, resource: Resource, obj: Tree, code: int = 200, raw: bytes = b"") -> Response:
        """One object. raw: its stored bytes, where they are at hand and show just that."""
        form = self.form
        if form.kind and obj.get("kind") != "Status":
            include = included(self.query.text("includeObject")) if form.kind == "Table" else ""
            body = self._dressed(encode(transformed(resource, obj, form, include, self.now)), form)
        else:
            body = self._dressed(raw or encode(obj), form)
        return Response(code, self._headers(form), body, self.server.unsaved_number)

    def _get(self, route: Route, resource: Resource) -> Response:
        self.form = form_of(self.request)
        refuse_export(self.query)
        wanted = version_of(self.query.text("resourceVersion"))
        store = self.server.store
        if wanted > store.version:
            raise version_too_large(wanted, store.version, self.server.options.future_s)
        value = store.get(resource.key(route.namespace, route.name))
        if value is None:
            raise not_found(resource.group, resource.plural, route.name)
        value = served(resource, value)
        return self._object(resource, decode(value) if self.form.kind else {}, raw=value)

    def _collection(self, route: Route, resource: Resource) -> Response | Stream:
        self.form = form_of(self.request)
        asked = list_options(self.query)
        if asked.watch or route.watch:
            self.form = form_of(self.request, watch=True)
            if "watch" not in resource.verbs:
                raise method_not_allowed()
            selection = selection_of(resource, asked, route.name)
            return self._watch(resource, route.namespace, asked, selection)
        selection = selection_of(resource, asked)
        if selection.namespace is not None and resource.namespaced and not route.namespace:
            # Nothing else can match, and the keys of one namespace stand together.
            page = self.server.lists.page(resource, selection.namespace, asked, selection)
        else:
            page = self.server.lists.page(resource, route.namespace, asked, selection)
        return self._list(resource, page)

    def _watch(
        self, resource: Resource, namespace: str, asked: ListOptions, selection: Selection
    ) -> Stream:
        include = included(self.query.text("includeObject")) if self.form.kind == "Table" else ""
        watcher = self.server.watch(resource, namespace, asked, selection, self.form, self.now)
        watcher.include = include
        return Stream(200, self._headers(self.form), watcher.number)

    def _list(self, resource: Resource, page: Page) -> Response:
        form = self.form
        commit = self.server.unsaved_number
        if form.kind:
            include = included(self.query.text("includeObject")) if form.kind == "Table" else ""
            objects = [decode(served(resource, value)) for value in page.values]
            tree = transformed_list(resource, objects, page.meta(), form, include, self.now)
            return Response(200, self._headers(form), self._dressed(encode(tree), form), commit)
        head = {
            "kind": resource.list_kind or resource.kind + "List",
            "apiVersion": resource.api_version,
            "metadata": {"continue": "", **page.meta()} if resource.custom else page.meta(),
        }
        start = encode(head)[:-1]
        items = b",".join([item(resource, value) for value in page.values])
        body = self._dressed(b'%b,"items":[%b]}' % (start, items), form)
        return Response(200, self._headers(form), body, commit)

    # Writes

    def _write(self, verb: str, route: Route, resource: Resource, sub: Subresource | None) -> Steps:
        self.form = form_of(self.request)
        if verb == "create":
            media, raw = body_type(self.request), self._body()
            call = self._call(verb, route, resource)
            work = self._reading(raw, media, resource, call)
            obj, warned = (yield from self._later(work, raw, media)).result()
            call = replace_call(call, now=self.now)
            call.warnings.extend(warned)
            stored = self.server.writes.create(call, _kept(resource, obj))
            return self._object(resource, _shown(resource, stored), 201, self._packed(resource))
        raw = self._body()
        call = self._call(verb, route, resource)
        strategy = sub.strategy if sub is not None else None
        if verb == "patch":
            kind = patches.patch_type(self.request, resource)
            mode = call.field_validation
            patch = yield from self._later(partial(patches.read, raw, kind, mode), raw, JSON)
            call = replace_call(call, now=self.now)

            def make(old: Tree) -> Tree:
                before = _shown(resource, old)
                new, warned = patches.apply(
                    before, patch.result(), kind, resource.schema, mode, self._mismatch(resource)
                )
                call.warnings.extend(warned)
                _place_and_check(new, call)
                return _kept(resource, new)

            obj, created = self.server.writes.update(call, make, "", strategy)
        else:
            media = body_type(self.request)
            work = self._reading(raw, media, resource, call)
            new, warned = (yield from self._later(work, raw, media)).result()
            call = replace_call(call, now=self.now)
            call.warnings.extend(warned)
            new.setdefault("metadata", {})
            _place_and_check(new, call)
            uid = new["metadata"].get("uid", "")
            kept = _kept(resource, new)
            obj, created = self.server.writes.update(call, lambda old: kept, uid, strategy)
        code = 201 if created else 200
        return self._object(resource, _shown(resource, obj), code, self._packed(resource))

    def _reading(
        self, raw: bytes, media: str, resource: Resource, call: Call
    ) -> Callable[[], tuple[Tree, list[str]]]:
        registry, mode = self.server.registry, call.field_validation
        return partial(read_object, raw, media, resource, registry, mode)

    def _mismatch(self, resource: Resource) -> Callable[[Tree], str]:
        if resource.custom:
            return lambda tree: ""
        return lambda tree: mismatch(tree, resource, self.server.registry)

    def _packed(self, resource: Resource) -> bytes:
        """What the write has stored, as it is served; empty if it stored nothing."""
        packed = self.server.writes.packed
        return served(resource, packed) if packed else b""

    def _delete(self, route: Route, resource: Resource) -> Steps:
        self.form = form_of(self.request)
        raw = self._body()
        media = self._media(raw)
        work = partial(read_deletion, raw, media, self.query)
        asked, dry_run, orphan = (yield from self._later(work, raw, media)).result()
        call = self._deleting(route, resource, "delete", dry_run)
        outcome = self.server.writes.delete(call, asked)
        code = 202 if not outcome.at_once and orphan is False else 200
        return self._object(resource, outcome.body, code)

    def _media(self, raw: bytes) -> str:
        return body_type(self.request) if raw else ""

    def _deleting(self, route: Route, resource: Resource, verb: str, dry_run: bool) -> Call:
        return Call(
            self.server,
            self.user,
            verb,
            resource,
            route.namespace,
            route.name,
            now=self.now,
            dry_run=dry_run,
            warnings=self.warnings,
        )

    def _delete_collection(self, route: Route, resource: Resource) -> Steps:
        self.form = form_of(self.request)
        listing: ListOptions = list_options(self.query)
        selection = selection_of(resource, listing)
        raw = self._body()
        media = self._media(raw)
        work = partial(read_deletion, raw, media, self.query)
        asked, dry_run, _ = (yield from self._later(work, raw, media)).result()
        page = self.server.lists.page(resource, route.namespace, listing, selection)
        prefix = prefix_of(resource, route.namespace)
        for value in page.values:
            meta = decode(value)["metadata"]
            if self.server.store.get(prefix + meta["name"]) is None:
                continue
            one = Route(
                route.group, route.version, route.plural, meta.get("namespace", ""), meta["name"]
            )
            call = self._deleting(one, resource, "deletecollection", dry_run)
            # The pipeline sets in it what applies to the one object.
            self.server.writes.delete(call, copy(asked))
        return self._list(resource, page)

    # Subresources

    def _of_kubelet(self, route: Route, resource: Resource) -> Response:
        value = self.server.store.get(resource.key(route.namespace, route.name))
        if value is None:
            raise not_found(resource.group, resource.plural, route.name)
        pod = decode(current(resource, value))
        return kubelet.answer(pod, route.subresource, self.request.method, self.query)

    def _subresource(self, route: Route, resource: Resource, sub: Subresource) -> Steps:
        verb = {"GET": "get", "PUT": "update", "PATCH": "patch", "POST": "create"}.get(
            self.request.method, ""
        )
        if verb not in sub.verbs:
            raise method_not_allowed()
        if verb == "patch":
            patches.patch_type(self.request, resource)
        check_routed(self.request, False)
        if sub.act is not None:
            return (yield from self._act(route, resource, sub))
        if sub.view is not None:
            return (yield from self._view(verb, route, resource, sub))
        if verb == "get":
            return self._get(route, resource)
        return (yield from self._write(verb, route, resource, sub))

    def _act(self, route: Route, resource: Resource, sub: Subresource | None) -> Steps:
        self.form = form_of(self.request)
        media, raw = body_type(self.request), self._body()
        call = self._call("create", route, resource)
        work = partial(self._acted, raw, media, resource, sub, call.field_validation)
        body, warned = (yield from self._later(work, raw, media)).result()
        call = replace_call(call, now=self.now)
        call.warnings.extend(warned)
        outcome = self.server.act_on(call, sub, body)
        return self._object(resource, outcome.body, outcome.code)

    def _acted(
        self, raw: bytes, media: str, resource: Resource, sub: Subresource | None, mode: str
    ) -> tuple[Tree, list[str]]:
        registry = self.server.registry
        if sub is None:
            return read_object(raw, media, resource, registry, mode)
        schema, kind, version = shape_of(resource, sub)
        return read_kind(raw, media, resource, schema, registry, mode, kind, version)

    def _view(self, verb: str, route: Route, resource: Resource, sub: Subresource) -> Steps:
        view = sub.view
        if view is None:
            raise no_such_path()
        self.form = form_of(self.request)
        schema, kind, version = shape_of(resource, sub)
        raw = self._body()
        call = self._call(verb, route, resource)
        value = self.server.store.get(resource.key(route.namespace, route.name))
        if value is None:
            raise not_found(resource.group, resource.plural, route.name)
        if verb == "get":
            return self._object(resource, view.read(decode(current(resource, value)), call))
        mode = call.field_validation
        make_new: Callable[[Tree], tuple[Tree, list[str]]]
        if verb == "patch":
            form = patches.patch_type(self.request, resource)
            patch = yield from self._later(partial(patches.read, raw, form, mode), raw, JSON)

            def make_new(old: Tree) -> tuple[Tree, list[str]]:
                new, warned = patches.apply(
                    view.read(old, call), patch.result(), form, schema, mode
                )
                return {**new, "kind": kind, "apiVersion": version}, warned

        else:
            media, registry = body_type(self.request), self.server.registry
            work = partial(read_kind, raw, media, resource, schema, registry, mode, kind, version)
            body = yield from self._later(work, raw, media)

            def make_new(old: Tree) -> tuple[Tree, list[str]]:
                return body.result()

        def make(old: Tree) -> Tree:
            new, warned = make_new(old)
            call.warnings.extend(warned)
            _place_and_check(new, call)
            return view.write(old, new, call)

        obj, _ = self.server.writes.update(call, make)
        return self._object(resource, view.read(obj, call))


def _is_of_kubelet(route: Route, resource: Resource) -> bool:
    """True for what a kubelet would answer."""
    of_pods = not resource.group and resource.plural == "pods" and not route.watch
    return of_pods and route.subresource in kubelet.NAMES


def shape_of(resource: Resource, sub: Subresource) -> tuple[Schema, str, str]:
    """Schema, kind and apiVersion of a subresource's body."""
    kind = sub.kind or resource.kind
    version = f"{sub.group}/{sub.version}" if sub.group else sub.version or resource.api_version
    return sub.schema or resource.schema, kind, version


def _kept(resource: Resource, obj: Tree) -> Tree:
    """A decoded tree as it is stored (`resource.Twin`)."""
    return obj if resource.twin is None else resource.twin.kept(obj)


def _shown(resource: Resource, obj: Tree) -> Tree:
    """A stored tree as it is served (`resource.Twin`)."""
    return obj if resource.twin is None else resource.twin.shown(obj)


def _place_and_check(obj: Tree, call: Call) -> None:
    place(obj["metadata"], call.namespace if call.resource.namespaced else "")
    check_name(obj, call.name, call.namespace)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + "".join(letter for letter in escaped if letter.isprintable()) + '"'
