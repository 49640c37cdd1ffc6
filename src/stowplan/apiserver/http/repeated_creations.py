"""Creations that repeat an earlier one except for the name: they are not worked out again.

Pods of a template arrive as bodies that differ in their name, or in nothing where the server
generates it. What is stored of them differs in the name, the uid, the version, the times and the
name of the token's volume. The second body of a form is worked out with its reads recorded, the
third must give the bytes that the second predicts; from then on bytes are filled in. A form counts
for the same user, headers and query, and while nothing is written of the kinds that were read.

Differs: the original works out every creation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, cast

import numpy as np
from msgspec.structs import replace

from stowplan.apis.admissionregistration.webhook_calls import SKIPPED
from stowplan.apis.core.pod_spec_key import TOKEN_VOLUME_PREFIX, generated_volume
from stowplan.apis.machinery.http_messages import HttpRequest, User
from stowplan.apis.machinery.object_meta import UidGenerator, generated_name, random_suffix
from stowplan.apis.machinery.resource import ApiCall, ObjectClient, Resource, ResourceRegistry
from stowplan.apis.machinery.stored_form import decode, encode
from stowplan.apis.machinery.timestamps import format_time
from stowplan.apiserver.admission.policies.policy_kinds import (
    MUTATING_BINDINGS,
    VALIDATING_BINDINGS,
)
from stowplan.apiserver.http.body_decoding import body_as_json, decode_tree
from stowplan.apiserver.http.negotiation import JSON, PROTOBUF, body_media_type
from stowplan.apiserver.storage.registry_store import RegistryStore
from stowplan.objects.encoding.tree import Tree

BODY_BYTES_MAX = 16 << 10
FORMS_MAX, SHAPES_MAX = 64, 1024
_DEFINITIONS = "apiextensions.k8s.io/customresourcedefinitions"
_LABEL = re.compile(rb"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_NAME, _UID, _VERSION, _TIME, _VOLUME = range(5)
"""Places in `_Filled`."""
_Place = tuple[Resource, str, tuple[tuple[str, str], ...], str, str]
"""What a form depends on: resource, namespace, query, media type and user agent."""


class _Filled(NamedTuple):
    """What differs between the objects of a form, encoded."""

    name: bytes
    uid: bytes
    version: bytes
    time: bytes
    volume: bytes


class _Form:
    """Bodies and stored bytes that differ in the parts of `_Filled` only.

    before, after: of the name in the body; the whole body if names are generated. length: of the
    name, 0 for any. prefix: of generated names. reads: counters of writes of the kinds that were
    read. is_checked: bytes were predicted, so that it may be used.
    """

    __slots__ = ("after", "before", "fills", "is_checked", "length", "pattern", "prefix", "reads",
                 "user")  # fmt: skip

    def __init__(self, user: User, before: bytes, after: bytes, length: int, prefix: str) -> None:
        self.user, self.before, self.after = user, before, after
        self.length, self.prefix = length, prefix
        self.reads: dict[str, int] = {}
        self.pattern = b""
        self.fills: tuple[int, ...] = ()
        self.is_checked = False

    def name_in(self, raw: bytes) -> bytes | None:
        """The name in a body of this form, b"" if it is to be generated; None for another body."""
        if self.prefix:
            return b"" if raw == self.before else None
        if not (raw.startswith(self.before) and raw.endswith(self.after)):
            return None
        name = raw[len(self.before) : len(raw) - len(self.after)]
        if self.length not in (0, len(name)) or _LABEL.fullmatch(name) is None:
            return None
        return name

    def stored(self, values: _Filled) -> bytes:
        """The stored bytes with these values."""
        return self.pattern % tuple([values[at] for at in self.fills])


class _RecordedReads:
    """The server's objects, which remembers what was read. is_complete: nothing else was done."""

    def __init__(self, objects: ObjectClient) -> None:
        self._objects = objects
        self.paths: set[str] = {_DEFINITIONS}
        self.is_complete = True

    @property
    def registry(self) -> ResourceRegistry:
        """The resources, which change with definitions only."""
        return self._objects.registry

    def n_writes(self, path: str) -> int:
        """See `resource.ObjectClient`, as the other methods."""
        self.paths.add(path)
        return self._objects.n_writes(path)

    def get(self, resource: Resource, namespace: str, name: str) -> Tree | None:
        self.paths.add(resource.path)
        return self._objects.get(resource, namespace, name)

    def peek(self, resource: Resource, namespace: str, name: str) -> Tree | None:
        self.paths.add(resource.path)
        return self._objects.peek(resource, namespace, name)

    def list(self, resource: Resource, namespace: str = "") -> Iterator[Tree]:
        self.paths.add(resource.path)
        return self._objects.list(resource, namespace)

    def peek_all(self, resource: Resource) -> Iterator[Tree]:
        self.paths.add(resource.path)
        return self._objects.peek_all(resource)

    def __getattr__(self, name: str) -> Any:
        self.is_complete = False
        return getattr(self._objects, name)


class RepeatedCreations:
    """The forms of one server. rng, uids: its generators; they are used in the usual order."""

    def __init__(self, writes: RegistryStore, rng: np.random.Generator) -> None:
        self._writes, self._rng = writes, rng
        self._is_on = all(getattr(one, "repeatable", False) for one in writes.admission)
        self._uids: UidGenerator = writes.uids
        self._forms: dict[_Place, list[_Form]] = {}
        self._n_forms = 0
        self._shapes: dict[tuple[_Place, bytes], bool] = {}
        """Bodies without their name that came before. True: they make no form."""

    def stored(
        self, request: HttpRequest, user: User, resource: Resource, namespace: str, now: float
    ) -> bytes | None:
        """Store an object whose body repeats others; its bytes. None: nothing was done."""
        if not (self._is_on and resource.strategy.repeats):
            return None
        raw = request.body
        for form in self._forms.get(_place_of(request, resource, namespace), ()):
            name = form.name_in(raw)
            if name is None or not form.is_checked or form.user != user:
                continue
            if not self._is_current(form):
                self._forget(form)
                return None
            return self._fill(form, resource, namespace, name, now)
        return None

    def _is_current(self, form: _Form) -> bool:
        writes = self._writes.store.writes
        return all(writes(path) == count for path, count in form.reads.items())

    def _forget(self, form: _Form) -> None:
        for forms in self._forms.values():
            if form in forms:
                forms.remove(form)
                self._n_forms -= 1

    def _fill(
        self, form: _Form, resource: Resource, namespace: str, name: bytes, now: float
    ) -> bytes | None:
        store = self._writes.store
        if name and store.get(resource.key(namespace, name.decode())) is not None:
            return None
        volume = ""
        if _VOLUME in form.fills:
            volume = TOKEN_VOLUME_PREFIX + random_suffix(self._rng)
        uid = self._uids.new()
        text = name.decode() or generated_name(form.prefix, self._rng)
        key = resource.key(namespace, text)
        if not name and store.get(key) is not None:
            return None
        values = _Filled(
            text.encode(), uid.encode(), b"%d" % (store.version + 1), format_time(now).encode(),
            volume.encode(),
        )  # fmt: skip
        packed = form.stored(values)
        self._writes.put_packed(resource, key, packed)
        return packed

    def create(self, request: HttpRequest, call: ApiCall, obj: Tree) -> Tree:
        """Store the object of a body that repeats none, and learn from it; see `RegistryStore`."""
        lesson = self._lesson(request, call, obj)
        if lesson is None:
            return self._writes.create(call, obj)
        stored = self._writes.create(lesson.call, obj)
        lesson.learn(self._writes.packed)
        return stored

    def _lesson(self, request: HttpRequest, call: ApiCall, obj: Tree) -> Lesson | None:
        """What a creation that is about to be worked out may teach; None for most."""
        raw = request.body
        repeats = self._is_on and call.resource.strategy.repeats and not call.dry_run
        if not repeats or len(raw) > BODY_BYTES_MAX:
            return None
        if call.warnings or (call.answers is not None and call.answers is not SKIPPED):
            return None
        media = body_media_type(request)
        if media not in (JSON, PROTOBUF) or b"managedFields" in raw:
            return None
        place = _place_of(request, call.resource, call.namespace)
        for form in self._forms.get(place, ()):
            if form.name_in(raw) is not None and form.user == call.user:
                return None if form.is_checked else Lesson(self, place, b"", form, call)
        meta = obj.get("metadata") or {}
        made = _form_of(raw, media, call.user, meta)
        if made is None:
            return None
        shape = made.before + b"\0" + made.after
        if (place, shape) not in self._shapes:
            if len(self._shapes) >= SHAPES_MAX:
                self._shapes.clear()
            self._shapes[place, shape] = False
            return None
        if self._shapes[place, shape] or not _is_name_alone(raw, media, meta, made):
            self._shapes[place, shape] = True
            return None
        return Lesson(self, place, shape, made, call)

    def keep(self, place: _Place, form: _Form) -> None:
        """Keep a form that is to be checked by the next body."""
        if self._n_forms >= FORMS_MAX:
            self._forms.clear()
            self._n_forms = 0
        self._forms.setdefault(place, []).append(form)
        self._n_forms += 1

    def refuse(self, place: _Place, shape: bytes) -> None:
        """Make no form of these bodies."""
        self._shapes[place, shape] = True

    def check(self, form: _Form, packed: bytes) -> None:
        """Use a form from now on, if it gives these bytes."""
        found = _values_of(decode(packed))
        if self._is_current(form) and form.stored(found) == packed:
            form.is_checked = True
        else:
            self._forget(form)

    def has_policies(self) -> bool:
        """True if an admission policy may be in force."""
        count = self._writes.store.count
        return bool(count(VALIDATING_BINDINGS) or count(MUTATING_BINDINGS))

    def reads_of(self, paths: set[str]) -> dict[str, int]:
        """The kinds that were read, with their counters."""
        return {path: self._writes.store.writes(path) for path in sorted(paths)}


class Lesson:
    """A creation from which a form is made, or by which it is checked. call: to be worked out."""

    def __init__(
        self, forms: RepeatedCreations, place: _Place, shape: bytes, form: _Form, call: ApiCall
    ) -> None:
        self._forms, self._place, self._shape, self._form = forms, place, shape, form
        self._warnings = call.warnings
        self._reads = _RecordedReads(call.objects)
        self.call = replace(call, objects=cast(ObjectClient, self._reads)) if shape else call

    def learn(self, packed: bytes) -> None:
        """Take in what was stored."""
        if not self._shape:
            self._forms.check(self._form, packed)
            return
        form = self._form
        found = _pattern_of(packed)
        fails = self._warnings or not self._reads.is_complete or self._forms.has_policies()
        if found is None or fails:
            self._forms.refuse(self._place, self._shape)
            return
        form.pattern, form.fills = found
        form.reads = self._forms.reads_of(self._reads.paths - {self._place[0].path})
        if self._place[0].path in self._reads.paths:
            self._forms.refuse(self._place, self._shape)
            return
        self._forms.keep(self._place, form)


def _place_of(request: HttpRequest, resource: Resource, namespace: str) -> _Place:
    headers: Mapping[str, str] = request.headers
    media, agent = headers.get("content-type", ""), headers.get("user-agent", "")
    return resource, namespace, request.query, media, agent


def _form_of(raw: bytes, media: str, user: User, meta: Tree) -> _Form | None:
    """The form of a body without what is stored; None if the name is not in one place only."""
    name = meta.get("name")
    if not name:
        prefix = meta.get("generateName")
        return _Form(user, raw, b"", 0, prefix) if prefix else None
    quoted = name.encode() if media == PROTOBUF else b'"%b"' % name.encode()
    if raw.count(quoted) != 1:
        return None
    at = raw.index(quoted) + (media == JSON)
    before, after = raw[:at], raw[at + len(name.encode()) :]
    length = len(name) if media == PROTOBUF else 0
    form = _Form(user, before, after, length, "")
    return None if form.name_in(raw) is None else form


def _is_name_alone(raw: bytes, media: str, meta: Tree, form: _Form) -> bool:
    """True if what a form leaves out of a body is the name of the object and nothing else."""
    if form.prefix:
        return True
    name = meta["name"]
    other = ("x" if name[0] != "x" else "y") * len(name)
    bodies = raw, form.before + other.encode() + form.after
    trees = [decode_tree(*body_as_json(body, media))[0] for body in bodies]
    trees[0]["metadata"]["name"] = other
    return trees[0] == trees[1]


def _values_of(obj: Tree) -> _Filled:
    meta = obj["metadata"]
    texts = (meta["name"], meta["uid"], meta["resourceVersion"], meta["creationTimestamp"],
             generated_volume(obj.get("spec") or {}))  # fmt: skip
    return _Filled(*(text.encode() for text in texts))


def _pattern_of(packed: bytes) -> tuple[bytes, tuple[int, ...]] | None:
    """Stored bytes with marks where values are filled in, and which; None if one is elsewhere."""
    obj = decode(packed)
    values = _values_of(obj)
    mark = next(text for at in range(len(packed)) if (text := f"~{at}:").encode() not in packed)
    meta, spec = obj["metadata"], obj.get("spec") or {}
    meta["name"], meta["uid"], meta["resourceVersion"] = (f"{mark}{at}~" for at in range(3))
    meta["creationTimestamp"] = f"{mark}{_TIME}~"
    for entry in meta.get("managedFields") or ():
        entry["time"] = f"{mark}{_TIME}~"
    volume = values.volume.decode()
    if volume:
        mounted = (
            one
            for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
            for one in container.get("volumeMounts") or ()
        )
        for one in (*spec["volumes"], *mounted):
            if one["name"] == volume:
                one["name"] = f"{mark}{_VOLUME}~"
    parts = re.split(f"{mark}(\\d)~".encode(), encode(obj))
    constants, fills = parts[::2], tuple(b"01234".index(one) for one in parts[1::2])
    if _is_elsewhere(values, constants):
        return None
    pattern = b"%b".join(one.replace(b"%", b"%%") for one in constants)
    return (pattern, fills) if pattern % tuple(values[at] for at in fills) == packed else None


def _is_elsewhere(values: _Filled, constants: Iterable[bytes]) -> bool:
    """True if what is filled in stands in other places as well, as times of conditions do."""
    texts = (b'"%b"' % values.name, values.uid, values.time, values.volume)
    return any(text and text in one for text in texts for one in constants)
