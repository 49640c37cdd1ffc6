"""Query parameters of requests as typed options, with the original's errors.

Source: apimachinery v0.36, apis/meta/internalversion (defaults, validation), conversion of URL
values; apiserver v0.36, endpoints/handlers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import lru_cache
from typing import Any

import msgspec

from stowplan.apis.machinery.errors import (
    FORBIDDEN,
    ApiError,
    Cause,
    bad_request,
    forbidden_field,
    invalid,
    invalid_object,
    not_supported,
    required,
    too_long,
)
from stowplan.apis.machinery.field_selector import FieldRequirement, parse_field_selector
from stowplan.apis.machinery.label_selector import (
    LabelRequirement,
    SelectorParseError,
    parse_label_selector,
)
from stowplan.apis.machinery.object_meta import META_GROUP
from stowplan.apis.machinery.object_selector import ObjectSelector
from stowplan.apis.machinery.resource import Resource
from stowplan.apis.machinery.strconv import NumError, parse_int, parse_uint
from stowplan.apis.validation.field_checks import dry_run_causes
from stowplan.objects.store import DeleteOptions

EXACT, NOT_OLDER = "Exact", "NotOlderThan"
FIELD_MANAGER_LENGTH_MAX = 128


class ListOptions(msgspec.Struct, frozen=True):
    """ListOptions of a GET. initial: sendInitialEvents; None if not set."""

    watch: bool = False
    bookmarks: bool = False
    version: str = ""
    match: str = ""
    timeout_s: int | None = None
    limit: int = 0
    token: str = ""
    initial: bool | None = None
    labels: tuple[LabelRequirement, ...] = ()
    fields: tuple[FieldRequirement, ...] = ()


class WriteOptions(msgspec.Struct, frozen=True):
    """CreateOptions, UpdateOptions or PatchOptions."""

    dry_run: bool = False
    field_manager: str = ""
    field_validation: str = "Warn"


_DEFAULT_WRITE_OPTIONS = WriteOptions()


class QueryParameters:
    """The parameters of a request; of a repeated one the first counts."""

    __slots__ = ("_first", "_pairs")

    def __init__(self, pairs: Iterable[tuple[str, str]]) -> None:
        self._pairs = tuple(pairs)
        self._first: dict[str, str] = {}
        for name, value in self._pairs:
            self._first.setdefault(name, value)

    @property
    def is_empty(self) -> bool:
        """True if there are no parameters."""
        return not self._pairs

    def text(self, name: str) -> str:
        """The value, "" if it is missing."""
        return self._first.get(name, "")

    def all(self, name: str) -> list[str]:
        """All values."""
        return [value for key, value in self._pairs if key == name]

    def flag(self, name: str) -> bool | None:
        """A bool: any value but false and 0 is true; None if it is missing."""
        value = self._first.get(name)
        return None if value is None else value.lower() not in ("false", "0")

    def number(self, name: str) -> int | None:
        """An int64; None if it is missing. Raises ApiError 400."""
        value = self._first.get(name)
        if value is None:
            return None
        try:
            return parse_int(value)
        except NumError as error:
            raise bad_request(str(error)) from None


def parse_resource_version(text: str) -> int:
    """A resourceVersion, 0 if empty; raises ApiError 500, as the original does."""
    try:
        return parse_uint(text) if text else 0
    except ValueError as error:
        cause = invalid("resourceVersion", text, str(error))
        raise ApiError(500, "", f"{cause.field}: {cause.message}") from None


def list_options(query: QueryParameters) -> ListOptions:
    """The options of a list or watch. Raises ApiError 400 or 422."""
    try:
        labels = parse_label_selector(query.text("labelSelector"))
        fields = parse_field_selector(query.text("fieldSelector"))
    except SelectorParseError as error:
        raise bad_request(str(error)) from None
    timeout_s = query.number("timeoutSeconds")
    limit = query.number("limit")
    options = ListOptions(
        watch=bool(query.flag("watch")),
        bookmarks=bool(query.flag("allowWatchBookmarks")),
        version=query.text("resourceVersion"),
        match=query.text("resourceVersionMatch"),
        timeout_s=timeout_s,
        limit=limit or 0,
        token=query.text("continue"),
        initial=query.flag("sendInitialEvents"),
        labels=labels,
        fields=fields,
    )
    legacy = options.version in ("", "0")
    if options.watch and legacy and options.initial is None and not options.match:
        options = msgspec.structs.replace(options, initial=True, match=NOT_OLDER)
    causes = _watch_causes(options) if options.watch else _list_causes(options)
    if causes:
        raise invalid_object(META_GROUP, "ListOptions", "", causes)
    return options


def _forbidden(text: str) -> Cause:
    return forbidden_field("resourceVersionMatch", text)


def _list_causes(requested: ListOptions) -> list[Cause]:
    found = []
    if requested.match:
        if not requested.version:
            found.append(
                _forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
            )
        if requested.token:
            found.append(_forbidden("resourceVersionMatch is forbidden when continue is provided"))
        if requested.match not in (EXACT, NOT_OLDER):
            found.append(
                not_supported("resourceVersionMatch", requested.match, (EXACT, NOT_OLDER, ""))
            )
        if requested.match == EXACT and requested.version == "0":
            found.append(
                _forbidden('resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
            )
    if requested.initial is not None:
        text = "Forbidden: sendInitialEvents is forbidden for list"
        found.append(Cause("sendInitialEvents", FORBIDDEN, text))
    return found


def _watch_causes(requested: ListOptions) -> list[Cause]:
    found = []
    if requested.initial is not None and requested.match != NOT_OLDER:
        text = f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER}"
        found.append(_forbidden(text))
    if requested.match:
        if requested.initial is None:
            text = (
                "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            )
            found.append(_forbidden(text))
        if requested.match != NOT_OLDER:
            found.append(not_supported("resourceVersionMatch", requested.match, (NOT_OLDER,)))
        if requested.token:
            found.append(_forbidden("resourceVersionMatch is forbidden when continue is provided"))
    return found


def object_selector(resource: Resource, requested: ListOptions, name: str = "") -> ObjectSelector:
    """The selectors. name: from the path of a watch of one object. Raises ApiError 400."""
    terms = requested.fields
    for term in terms:
        _check_field(resource, term.field)
    if name:
        if terms and not any(
            t.equal and (t.field, t.value) == ("metadata.name", name) for t in terms
        ):
            raise bad_request("fieldSelector metadata.name doesn't match requested name")
        terms = terms or (FieldRequirement("metadata.name", name),)
    return ObjectSelector(requested.labels, terms, resource)


_OTHER_FIELD = "field label not supported: {0}"
_UNKNOWN_FIELD = {
    "Job": 'field label "{0}" not supported for {1.kind}',
    "ResourceSlice": "field label not supported for {1.api_version}, Kind={1.kind}: {0}",
}
"""By kind, what the original says of a field that is not selectable."""


def _check_field(resource: Resource, field: str) -> None:
    """Raises ApiError 400 for a field that is not selectable."""
    if field == "metadata.name" or field in resource.fields:
        return
    registered = bool(resource.fields) or resource.custom
    if field == "metadata.namespace" and (resource.namespaced or not registered):
        return
    if registered:
        raise bad_request(_UNKNOWN_FIELD.get(resource.kind, _OTHER_FIELD).format(field, resource))
    known = 'only "metadata.name", "metadata.namespace"'
    raise bad_request(f'"{field}" is not a known field selector: {known}')


def reject_export(query: QueryParameters) -> None:
    """Raises ApiError 400 for the removed parameter `export`."""
    if query.flag("export"):
        raise bad_request("the export parameter, deprecated since v1.14, is no longer supported")


def write_options(query: QueryParameters, kind: str, applies: bool = False) -> WriteOptions:
    """The options of a create, update or patch; kind: `CreateOptions`... applies: of an apply.

    Raises ApiError 422.
    """
    if query.is_empty and not applies:
        return _DEFAULT_WRITE_OPTIONS
    manager = query.text("fieldManager")
    dry_run = query.all("dryRun")
    validation = query.text("fieldValidation")
    causes = []
    if applies and not manager:
        causes.append(required("fieldManager", "is required for apply patch"))
    if kind == "PatchOptions" and not applies and query.flag("force") is not None:
        causes.append(forbidden_field("force", "may not be specified for non-apply patch"))
    if len(manager) > FIELD_MANAGER_LENGTH_MAX:
        causes.append(too_long("fieldManager", FIELD_MANAGER_LENGTH_MAX))
    causes += _unprintable_causes("fieldManager", manager)
    causes += dry_run_causes(dry_run)
    if validation not in ("", "Ignore", "Warn", "Strict"):
        wanted = ("", "Ignore", "Strict", "Warn")
        causes.append(not_supported("fieldValidation", validation, wanted))
    if causes:
        raise invalid_object(META_GROUP, kind, "", causes)
    return WriteOptions(bool(dry_run), manager, validation or "Warn")


def manager_name(options: WriteOptions | None, user_agent: str) -> str:
    """The name under which managedFields record a write: the parameter, or the client's."""
    if options is not None and options.field_manager:
        return options.field_manager
    return _agent_name(user_agent)


@lru_cache(maxsize=256)
def _agent_name(user_agent: str) -> str:
    sent = user_agent.partition("/")[0]
    if not sent.isascii():
        # Header values arrive as Latin-1; the original takes their bytes as UTF-8.
        with suppress(UnicodeError):
            sent = sent.encode("latin-1").decode()
    printable = "".join(letter for letter in sent if letter.isprintable())
    return printable.encode()[:FIELD_MANAGER_LENGTH_MAX].decode(errors="ignore")


def given_options(query: QueryParameters) -> dict[str, Any]:
    """The fields of the options of a write that the request gives."""
    if query.is_empty:
        return {}
    made: dict[str, Any] = {}
    if query.all("dryRun"):
        made["dryRun"] = query.all("dryRun")
    for name in ("fieldManager", "fieldValidation"):
        if query.text(name):
            made[name] = query.text(name)
    return made


def given_delete_options(options: DeleteOptions, dry_run: bool) -> dict[str, Any]:
    """The fields of the options of a deletion that the request gives."""
    made: dict[str, Any] = {}
    if options.grace_s is not None:
        made["gracePeriodSeconds"] = options.grace_s
    held = {"uid": options.uid, "resourceVersion": options.version}
    if any(held.values()):
        made["preconditions"] = {key: one for key, one in held.items() if one}
    if options.propagation:
        made["propagationPolicy"] = options.propagation
    if dry_run:
        made["dryRun"] = ["All"]
    return made


def _unprintable_causes(field: str, text: str) -> Iterator[Cause]:
    """Causes of unprintable characters, with their byte offset."""
    for place, letter in enumerate(text):
        if not letter.isprintable():
            at = len(text[:place].encode())
            yield invalid(field, text, f"invalid character U+{ord(letter):04X} (at position {at})")
