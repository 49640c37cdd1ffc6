"""String formats of the schemas of custom kinds.

Source: apiextensions-apiserver v0.36, pkg/apiserver/validation/formats.go; kube-openapi strfmt.
"""

from __future__ import annotations

import base64
import binascii
import ipaddress
import re
from collections.abc import Callable
from urllib.parse import urlsplit

from stowplan.apis.machinery.names import label_problems, subdomain_problems

_UUID = r"(?i)[0-9a-f]{8}-?[0-9a-f]{4}-?%s[0-9a-f]{3}-?%s[0-9a-f]{3}-?[0-9a-f]{12}"
_HEX_DIGIT = "[0-9a-f]"
_DATE = r"\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01])"
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d+)?(?:[zZ]|[+-]\d\d:\d\d)?"
_DURATION = r"-?(?:\d+(?:\.\d*)?\s*(?:ns|us|µs|ms|s|m|h|d|w|days?|hours?|minutes?|seconds?)\s*)+"


def _matches(pattern: str) -> Callable[[str], bool]:
    compiled = re.compile(pattern)
    return lambda text: compiled.fullmatch(text) is not None


def _address(version: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        try:
            return ipaddress.ip_address(text).version == version
        except ValueError:
            return False

    return check


def _network(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _bytes(text: str) -> bool:
    try:
        base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def _uri(text: str) -> bool:
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return bool(parts.scheme) or text.startswith("/")


def _isbn(*lengths: int) -> Callable[[str], bool]:
    def check(text: str) -> bool:
        digits = re.sub(r"[ -]", "", text)
        return len(digits) in lengths and digits[:-1].isdigit()

    return check


FORMATS: dict[str, Callable[[str], bool]] = {
    "bsonobjectid": _matches(r"[0-9a-fA-F]{24}"),
    "uri": _uri,
    "email": _matches(r"[^@\s]+@[^@\s]+"),
    "hostname": _matches(r"(?=.{1,255}$)[A-Za-z0-9]([\w-]{0,62})?(\.[A-Za-z0-9]([\w-]{0,62})?)*"),
    "ipv4": _address(4),
    "ipv6": _address(6),
    "cidr": _network,
    "mac": _matches(r"(?i)[0-9a-f]{2}([:-][0-9a-f]{2}){5,7}|[0-9a-f]{4}(\.[0-9a-f]{4}){2,3}"),
    "uuid": _matches(_UUID % (_HEX_DIGIT, _HEX_DIGIT)),
    "uuid3": _matches(_UUID % ("3", _HEX_DIGIT)),
    "uuid4": _matches(_UUID % ("4", "[89ab]")),
    "uuid5": _matches(_UUID % ("5", "[89ab]")),
    "isbn": _isbn(10, 13),
    "isbn10": _isbn(10),
    "isbn13": _isbn(13),
    "creditcard": _matches(r"(?:\D*\d){13,16}\D*"),
    "ssn": _matches(r"\d{3}[- ]?\d{2}[- ]?\d{4}"),
    "hexcolor": _matches(r"#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})"),
    "rgbcolor": _matches(r"rgb\(\s*\d{1,3}\s*,\s*\d{1,3}\s*,\s*\d{1,3}\s*\)"),
    "byte": _bytes,
    "password": lambda text: True,
    "date": _matches(_DATE),
    "duration": _matches(_DURATION),
    "datetime": _matches(f"{_DATE}[tT ]{_TIME}"),
    "k8sshortname": lambda text: not label_problems(text),
    "k8slongname": lambda text: not subdomain_problems(text),
}
"""Checks by the name of the format, without dashes."""

NUMBER_FORMATS = {"integer": ("int32", "int64"), "number": ("float", "double")}


def is_known_format(kind: str, name: str) -> bool:
    """True for a known format of this type; others are ignored."""
    if kind in NUMBER_FORMATS:
        return name in NUMBER_FORMATS[kind]
    return kind in ("", "string") and name.replace("-", "") in FORMATS


def matches_format(name: str, text: str) -> bool:
    """True if a text has the format."""
    return FORMATS[name.replace("-", "")](text)
