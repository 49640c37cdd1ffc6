"""URLs in CEL.

Source: apiserver v1.36, pkg/cel/library/urls.go; Go 1.26, net/url (rules and messages).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, unquote_plus

from stowplan.cel.libraries.standard_library import traversal
from stowplan.cel.overloads import Library
from stowplan.cel.values import LIBRARY_KINDS, EvaluationError, MapValue, ValueKind

URL_TYPE = "kubernetes.URL"
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2}).{0,2}", re.DOTALL)
_PORT = re.compile(r":[0-9]*")
_HOST_LETTERS = re.compile(r"[\x00-\x20<>\"^`{}|\\]")
_PATH_SAFE = "/:@!$&'()*+,;=~%"


@dataclass(frozen=True, slots=True)
class CelUrl:
    """A URL. host: with the port. path: encoded. query: without `?`."""

    scheme: str
    host: str
    path: str
    query: str
    user: str = ""
    fragment: str = ""

    @property
    def hostname(self) -> str:
        """The host without brackets and port."""
        return self._split_host()[0]

    @property
    def port(self) -> str:
        """The port, "" for none."""
        return self._split_host()[1]

    def _split_host(self) -> tuple[str, str]:
        host, colon, port = self.host.rpartition(":")
        if not colon or not (port.isdigit() or port == "") or port.endswith("]"):
            host, port = self.host, ""
        return host.removeprefix("[").removesuffix("]"), port


class _WrongUrl(Exception):
    """Go refuses the URL."""


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _scheme_of(text: str) -> tuple[str, str]:
    """(scheme, rest) of a text."""
    for place, letter in enumerate(text):
        if letter == ":":
            if place == 0:
                raise _WrongUrl("missing protocol scheme")
            return text[:place].lower(), text[place + 1 :]
        is_letter = letter.isascii() and letter.isalpha()
        if not is_letter and (place == 0 or not re.fullmatch("[0-9+.-]", letter)):
            return "", text
    return "", text


def _check_escapes(text: str) -> None:
    found = _PERCENT.search(text)
    if found is not None:
        raise _WrongUrl(f"invalid URL escape {_quoted(found.group())}")


def _check_host(authority: str) -> str:
    host = authority.rpartition("@")[2]
    if host.startswith("["):
        end = host.rfind("]")
        if end < 0:
            raise _WrongUrl("missing ']' in host")
        tail = host[end + 1 :]
        if tail and not _PORT.fullmatch(tail):
            raise _WrongUrl(f"invalid port {_quoted(tail)} after host")
    elif ":" in host:
        tail = host[host.rindex(":") :]
        if not _PORT.fullmatch(tail):
            raise _WrongUrl(f"invalid port {_quoted(tail)} after host")
    wrong = _HOST_LETTERS.search(host)
    if wrong is not None:
        raise _WrongUrl(f"invalid character {_quoted(wrong.group())} in host name")
    return host


def _parsed(text: str, *, via_request: bool) -> CelUrl:
    if any(ord(letter) < 0x20 or ord(letter) == 0x7F for letter in text):
        raise _WrongUrl("net/url: invalid control character in URL")
    if not text and via_request:
        raise _WrongUrl("empty url")
    fragment = ""
    if not via_request:
        text, _, fragment = text.partition("#")
    scheme, rest = _scheme_of(text)
    rest, _, query = rest.partition("?")
    if not rest.startswith("/"):
        if scheme:
            # Opaque, such as mailto:a@b.
            return CelUrl(scheme, "", "", query)
        if via_request:
            raise _WrongUrl("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise _WrongUrl("first path segment in URL cannot contain colon")
    host = user = ""
    if rest.startswith("//") and (scheme or (not via_request and not rest.startswith("///"))):
        authority, slash, path = rest[2:].partition("/")
        host = _check_host(authority)
        user = authority.rpartition("@")[0]
        rest = slash + path
    _check_escapes(rest)
    return CelUrl(scheme, host, quote(rest, safe=_PATH_SAFE), query, user, fragment)


def request_url_problem(text: str) -> str:
    """Go's error for a text that is no absolute URL or path, "" if it is one."""
    try:
        _parsed(text, via_request=True)
    except _WrongUrl as error:
        return f"parse {_quoted(text)}: {error}"
    return ""


def parse_url(text: str) -> CelUrl:
    """A URL; raises EvaluationError with the original's text."""
    problem = request_url_problem(text)
    if not problem:
        try:
            return _parsed(text, via_request=False)
        except _WrongUrl as error:
            problem = f"parse {_quoted(text)}: {error}"
    raise EvaluationError(f"URL parse error during conversion from string: {problem}")


def _query(held: CelUrl) -> MapValue:
    found: dict[str, list[str]] = {}
    for part in held.query.split("&"):
        # Go leaves out pairs with a semicolon or a broken escape.
        if not part or ";" in part or _PERCENT.search(part):
            continue
        key, _, value = part.partition("=")
        found.setdefault(unquote_plus(key), []).append(unquote_plus(value))
    return MapValue((key, tuple(values)) for key, values in found.items())


LIBRARY_KINDS[CelUrl] = ValueKind(URL_TYPE, lambda one, two: bool(one == two))


def url_library() -> Library:
    """`url`, `isURL` and what URLs answer."""
    library = Library()
    add = library.add
    add("string_to_url", f"url(string) {URL_TYPE}", parse_url, traversal())
    add("is_url_string", "isURL(string) bool", lambda text: not request_url_problem(text))
    parts: tuple[tuple[str, str, Any], ...] = (
        ("scheme", "getScheme", lambda held: held.scheme),
        ("host", "getHost", lambda held: held.host),
        ("hostname", "getHostname", lambda held: held.hostname),
        ("port", "getPort", lambda held: held.port),
        ("escaped_path", "getEscapedPath", lambda held: held.path),
    )
    for word, name, run in parts:
        add(f"url_get_{word}", f"{URL_TYPE}->{name}() string", run)
    add("url_get_query", f"{URL_TYPE}->getQuery() map(string, list(string))", _query)
    return library
