"""Paged lists of the current or an older version, and continue tokens.

Source: apiserver v0.36, storage/continue.go, storage/cacher/delegator, storage/etcd3/store.go.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterator

import msgspec

from stowplan.apis.machinery.errors import ApiError, bad_request, expired, invalid
from stowplan.apis.machinery.object_selector import ObjectSelector
from stowplan.apis.machinery.resource import Resource
from stowplan.apis.machinery.stored_form import encode
from stowplan.apis.machinery.strconv import parse_uint
from stowplan.apis.schema.json_parser import syntax_error_message
from stowplan.apiserver.http.request_options import EXACT, ListOptions
from stowplan.apiserver.storage.versioned_store import VersionedStore
from stowplan.objects.encoding.tree import Tree

TOO_OLD_TOKEN = (
    "The provided continue parameter is too old to display a consistent list result. You can start"
    " a new list without the continue parameter, or use the continue token in this response to"
    " retrieve the remainder of the results. Continuing with the provided token results in an"
    " inconsistent list - objects that were created, modified, or deleted between the time the"
    " first chunk was returned and now may show up in the list."
)
TOO_OLD_LIST = "The resourceVersion for the provided list is too old."


class ListResult(msgspec.Struct, frozen=True):
    """A page: stored bytes in order, resourceVersion, continue token."""

    version: int
    values: list[bytes]
    token: str = ""
    remaining: int | None = None

    def meta(self) -> Tree:
        """ListMeta."""
        tree: Tree = {"resourceVersion": str(self.version)}
        if self.token:
            tree["continue"] = self.token
        if self.remaining is not None:
            tree["remainingItemCount"] = self.remaining
        return tree


class _ContinueToken(msgspec.Struct):
    v: str = ""
    rv: int = 0
    start: str = ""


def encode_continue_token(version: int, start: str) -> str:
    """A continue token. start: the key after the last one, relative to the list's prefix."""
    raw = encode({"v": "meta.k8s.io/v1", "rv": version, "start": start})
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def decode_continue_token(text: str) -> tuple[int, str]:
    """Version (negative: any) and relative start key of a token. Raises ApiError 400."""
    try:
        raw = base64.urlsafe_b64decode(_padded_base64(text))
    except (binascii.Error, ValueError):
        at = next((n for n, c in enumerate(text) if not _is_base64_url(c)), len(text))
        raise _bad_continue_token(f"illegal base64 data at input byte {at}") from None
    try:
        token = msgspec.json.decode(raw, type=_ContinueToken)
    except msgspec.ValidationError as error:
        raise _bad_continue_token(str(error)) from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise _bad_continue_token(syntax_error_message(raw.decode("latin-1"))) from None
    if token.v != "meta.k8s.io/v1":
        known = "server does not recognize this encoded version"
        raise _bad_continue_token(f"{known} {token.v}", "continue key is not valid: ")
    if token.rv == 0:
        raise _bad_continue_token(
            "incorrect encoded start resourceVersion (version meta.k8s.io/v1)"
        )
    if not token.start:
        raise _bad_continue_token("encoded start key empty (version meta.k8s.io/v1)")
    start = token.start.removeprefix("/")
    if any(part in ("", ".", "..") for part in start.split("/")):
        raise _bad_continue_token(token.start)
    return token.rv, start


def _is_base64_url(letter: str) -> bool:
    return letter.isascii() and (letter.isalnum() or letter in "-_")


def _padded_base64(text: str) -> str:
    # Python's decoder skips characters outside the alphabet, Go's does not.
    if not all(_is_base64_url(letter) for letter in text) or len(text) % 4 == 1:
        raise ValueError("not base64")
    return text + "=" * (-len(text) % 4)


def _bad_continue_token(why: str, known: str = "continue key is not valid: ") -> ApiError:
    return bad_request(f"invalid continue token: {known}{why}")


def resource_version_too_large(version: int, current: int, after: float) -> ApiError:
    """504 of a future resourceVersion, delayed by `after` seconds."""
    text = f"Timeout: Too large resource version: {version}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    details = {"causes": [cause], "retryAfterSeconds": 1}
    return ApiError(504, "Timeout", text, details, (("Retry-After", "1"),), after)


def list_key_prefix(resource: Resource, namespace: str) -> str:
    """The prefix of the keys of a list."""
    if not resource.namespaced:
        return f"{resource.path}//"
    return f"{resource.path}/{namespace}/" if namespace else f"{resource.path}/"


class PagedLister:
    """Pages of lists of a store.

    horizon: lists at exactly an older version are rejected; watches may reach further back.
    """

    def __init__(self, store: VersionedStore, future_s: float) -> None:
        self.store = store
        self.future_s = future_s
        self.horizon = 0

    def page(
        self, resource: Resource, namespace: str, requested: ListOptions, selection: ObjectSelector
    ) -> ListResult:
        """The page of a list request. Raises ApiError 400, 410, 504."""
        start, version = "", 0
        limit = max(requested.limit, 0)
        if requested.token:
            version, start = decode_continue_token(requested.token)
            if requested.version not in ("", "0"):
                raise bad_request("specifying resource version is not allowed when using continue")
            self._check_known_version(version, start)
        else:
            wanted = self._requested_version(requested.version)
            exact = requested.match == EXACT or (not requested.match and limit > 0)
            if wanted and exact:
                self._check_known_version(wanted)
                version = wanted
        if requested.version == "0":
            # Served from the watch cache in the original, which then ignores limits.
            limit = 0
        return self._page_at(resource, namespace, version, start, limit, selection)

    def _requested_version(self, text: str) -> int:
        try:
            wanted = parse_uint(text) if text else 0
        except ValueError as error:
            cause = invalid("resourceVersion", text, str(error))
            text = f"invalid resource version: {cause.field}: {cause.message}"
            raise bad_request(text) from None
        if wanted > self.store.version:
            raise resource_version_too_large(wanted, self.store.version, self.future_s)
        return wanted

    def _check_known_version(self, version: int, start: str = "") -> None:
        """Raises ApiError 410 for a compacted version, 504 for a future one."""
        if version > self.store.version:
            raise resource_version_too_large(version, self.store.version, self.future_s)
        if 0 < version < max(self.horizon, self.store.compacted):
            if not start:
                raise expired(TOO_OLD_LIST)
            raise ApiError(410, "Expired", TOO_OLD_TOKEN, token=encode_continue_token(-1, start))

    def _page_at(
        self,
        resource: Resource,
        namespace: str,
        version: int,
        start: str,
        limit: int,
        selection: ObjectSelector,
    ) -> ListResult:
        prefix = list_key_prefix(resource, namespace)
        first = prefix + start
        now = self.store.version
        past = 0 < version < now
        walk: Iterator[tuple[str, bytes]]
        if past:
            found = list(self.store.under_at(resource.path, prefix, version, first))
            count, walk = len(found), iter(found)
        else:
            count = self.store.count_under(resource.path, prefix, first) if limit else 0
            walk = self._walk(resource, namespace, prefix, first, selection)
        printed = version if past else now
        if not selection and not limit:
            return ListResult(printed, [value for _, value in walk])
        values: list[bytes] = []
        for key, value in walk:
            if selection.matches(value):
                values.append(value)
            if limit and len(values) >= limit:
                if next(walk, None) is None:
                    break
                token = encode_continue_token(printed, f"/{key[len(prefix) :]}\x00")
                return ListResult(printed, values, token, None if selection else count - limit)
        return ListResult(printed, values)

    def _walk(
        self, resource: Resource, namespace: str, prefix: str, first: str, selection: ObjectSelector
    ) -> Iterator[tuple[str, bytes]]:
        """The candidates of the list; only one object if the selection has its name."""
        if selection.name and (namespace or not resource.namespaced):
            key = prefix + selection.name
            value = self.store.get(key)
            return iter([(key, value)] if value is not None and key >= first else [])
        return self.store.under(resource.path, prefix, first)
