"""Validation of single fields; generators of causes in the original's order.

Source: kubernetes v1.36, pkg/apis/core/validation; apimachinery v0.36, util/validation and
meta/v1/validation.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
)
from stowplan.apis.machinery.names import (
    label_problems,
    label_value_problems,
    path_segment_problems,
    qualified_name_problems,
    regex_text,
    subdomain_problems,
)
from stowplan.apis.machinery.text_cache import cache_short_texts
from stowplan.objects.encoding.tree import Tree

IMMUTABLE = "field is immutable"
NOT_NEGATIVE = "must be greater than or equal to 0"
POSITIVE = "must be greater than zero"
FILE_MODE = "must be a number between 0 and 0777 (octal), both inclusive"
INT32_MAX = 2**31 - 1

_PORT_NAME = re.compile(r"[-a-z0-9]+")
_LETTER = re.compile(r"[a-z]")
_ENV = re.compile(r"[ -<>-~]+")
_CONFIG_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_HTTP_PATH = re.compile(r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+")
_HEADER = re.compile(r"[-A-Za-z0-9]+")
_CACHE = 1 << 12

FieldCheck = Callable[[str, str], Iterator[Cause]]


def label_name(key: str, path: str) -> Iterator[Cause]:
    """A key of a label."""
    for text in _qualified(key):
        yield invalid(path, key, text)


qualified_name = label_name


@cache_short_texts(_CACHE)
def _qualified(key: str) -> tuple[str, ...]:
    return tuple(qualified_name_problems(key))


def label_values(values: Iterable[str], path: str) -> Iterator[Cause]:
    """The values of a selector's requirement."""
    for at, value in enumerate(values):
        for text in label_value_problems(value):
            yield invalid(f"{path}[{at}]", value, text)


def labels(given: Mapping[str, str], path: str) -> Iterator[Cause]:
    """Labels, or a node selector: keys and values at one path."""
    for key, value in given.items():
        for text in _qualified(key):
            yield invalid(path, key, text)
        for text in label_value_problems(value):
            yield invalid(path, value, text)


def dns_label(value: str, path: str) -> Iterator[Cause]:
    """A DNS label."""
    for text in label_problems(value):
        yield invalid(path, value, text)


def dns_subdomain(value: str, path: str) -> Iterator[Cause]:
    """A DNS subdomain."""
    for text in subdomain_problems(value):
        yield invalid(path, value, text)


def path_segment(value: str, path: str) -> Iterator[Cause]:
    """A name that is a segment of a URL path."""
    for text in path_segment_problems(value):
        yield invalid(path, value, text)


def supported_value(
    value: str, wanted: Sequence[str], path: str, needed: bool = True
) -> Iterator[Cause]:
    """A supported value; `wanted` in the order to print. needed: "" is a missing value."""
    if value in wanted:
        return
    yield required(path) if needed and not value else not_supported(path, value, wanted)


def one_of(value: str | None, wanted: Sequence[str], path: str) -> Iterator[Cause]:
    """A supported value, or none; `wanted` in the order to print."""
    if value is not None and value not in wanted:
        yield not_supported(path, value, wanted)


def needed(value: str, check: FieldCheck, path: str) -> Iterator[Cause]:
    """A value that is required, and valid by `check`."""
    return check(value, path) if value else iter([required(path)])


def unique(value: str, seen: set[str], path: str) -> Iterator[Cause]:
    """A value that is not in `seen`, to which it is added."""
    if value in seen:
        yield duplicate(path, value)
    seen.add(value)


def not_negative(value: int | None, path: str) -> Iterator[Cause]:
    """Zero or more, or not set."""
    if value is not None and value < 0:
        yield invalid(path, value, NOT_NEGATIVE)


def not_negative_fields(tree: Tree, names: Iterable[str], path: str) -> Iterator[Cause]:
    """Each of the fields of `tree` is zero or more, or not set."""
    for name in names:
        yield from not_negative(tree.get(name), f"{path}.{name}")


def operator_values(term: Tree, path: str) -> Iterator[Cause]:
    """As many values as the operator of a selector's requirement takes."""
    values = term.get("values", ())
    match term["operator"]:
        case "In" | "NotIn":
            if not values:
                text = "must be specified when `operator` is 'In' or 'NotIn'"
                yield required(f"{path}.values", text)
        case "Exists" | "DoesNotExist":
            if values:
                text = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                yield forbidden_field(f"{path}.values", text)
        case other:
            yield invalid(f"{path}.operator", other, "not a valid selector operator")


def positive(value: int, path: str) -> Iterator[Cause]:
    """More than zero."""
    if value <= 0:
        yield invalid(path, value, POSITIVE)


def inclusive(low: int, high: int) -> str:
    """`must be between A and B, inclusive`."""
    return f"must be between {low} and {high}, inclusive"


def port_number(value: int, path: str) -> Iterator[Cause]:
    """A port."""
    if not 1 <= value <= 65535:
        yield invalid(path, value, inclusive(1, 65535))


def port_name(value: str, path: str) -> Iterator[Cause]:
    """The name of a port."""
    if len(value) > 15:
        yield invalid(path, value, "must be no more than 15 characters")
    if not _PORT_NAME.fullmatch(value):
        yield invalid(
            path, value, "must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)"
        )
    if not _LETTER.search(value):
        yield invalid(path, value, "must contain at least one letter (a-z)")
    if "--" in value:
        yield invalid(path, value, "must not contain consecutive hyphens")
    if value and (value[0] == "-" or value[-1] == "-"):
        yield invalid(path, value, "must not begin or end with a hyphen")


def port_number_or_name(value: int | str, path: str) -> Iterator[Cause]:
    """A port by number or by name."""
    if isinstance(value, int):
        yield from port_number(value, path)
    else:
        yield from port_name(value, path)


def env_name(value: str, path: str) -> Iterator[Cause]:
    """The name of an environment variable: anything printable but an equals sign."""
    if not _ENV.fullmatch(value):
        yield invalid(
            path,
            value,
            "a valid environment variable name must consist only of printable ASCII characters "
            "other than '='",
        )


def config_key(value: str, path: str) -> Iterator[Cause]:
    """A key of a config map or secret."""
    if len(value) > 253:
        yield invalid(path, value, "must be no more than 253 characters")
    if not _CONFIG_KEY.fullmatch(value):
        yield invalid(
            path,
            value,
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' "
            "(e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is "
            "'[-._a-zA-Z0-9]+')",
        )
    if value == "." or value == "..":
        yield invalid(path, value, f"must not be '{value}'")
    elif value.startswith(".."):
        yield invalid(path, value, "must not start with '..'")


def header_name(value: str, path: str) -> Iterator[Cause]:
    """The name of an HTTP header."""
    if not _HEADER.fullmatch(value):
        yield invalid(
            path,
            value,
            "a valid HTTP header must consist of alphanumeric characters or '-' "
            "(e.g. 'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')",
        )


def path_without_backsteps(value: str, path: str) -> Iterator[Cause]:
    """A path without `..`."""
    if ".." in value.split("/"):
        yield invalid(path, value, "must not contain '..'")


def local_descending_path(value: str, path: str) -> Iterator[Cause]:
    """A relative path without `..`."""
    if value.startswith("/"):
        yield invalid(path, value, "must be a relative path")
    yield from path_without_backsteps(value, path)


def local_non_reserved_path(value: str, path: str) -> Iterator[Cause]:
    """A relative path that does not begin with `..`."""
    yield from local_descending_path(value, path)
    if value.startswith("..") and not value.startswith("../"):
        yield invalid(path, value, "must not start with '..'")


def file_mode(value: int | None, path: str) -> Iterator[Cause]:
    """Permission bits, 0 to 0777."""
    if value is not None and not 0 <= value <= 0o777:
        yield invalid(path, value, FILE_MODE)


def user_id(value: int | None, path: str) -> Iterator[Cause]:
    """A user or group."""
    if value is not None and not 0 <= value <= INT32_MAX:
        yield invalid(path, value, inclusive(0, INT32_MAX))


def address(value: str, path: str) -> Iterator[Cause]:
    """An IP address."""
    try:
        ipaddress.ip_address(value)
    except ValueError:
        yield invalid(path, value, "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)")


def canonical_address(value: str, path: str) -> Iterator[Cause]:
    """An IP address in the form in which Go writes it."""
    problems = list(address(value, path))
    yield from problems
    if not problems and str(ipaddress.ip_address(value)) != value:
        form = quoted(str(ipaddress.ip_address(value)))
        yield invalid(path, value, f"must be in canonical form ({form})")


def canonical_network(value: str, path: str) -> Iterator[Cause]:
    """A CIDR in the form in which Go writes it."""
    problems = list(network(value, path))
    yield from problems
    if not problems:
        form = str(ipaddress.ip_network(value, strict=False))
        if form != value:
            yield invalid(path, value, f"must be in canonical form ({quoted(form)})")


def domain_prefixed_path(value: str, path: str) -> Iterator[Cause]:
    """A path behind a domain, such as `acme.io/foo`."""
    if not value:
        yield required(path)
        return
    host, _, rest = value.partition("/")
    if not host or not rest:
        yield invalid(path, value, 'must be a domain-prefixed path (such as "acme.io/foo")')
        return
    yield from dns_subdomain(host, path)
    if not _HTTP_PATH.fullmatch(rest):
        yield invalid(path, rest, regex_text("Invalid path", _HTTP_PATH.pattern))


def endpoint_address(value: str, path: str) -> Iterator[Cause]:
    """An address that endpoints can have; it is one already."""
    found = ipaddress.ip_address(value)
    if found.is_unspecified:
        yield invalid(path, value, f"may not be unspecified ({value})")
    if found.is_loopback:
        text = "may not be in the loopback range (127.0.0.0/8, ::1/128)"
        yield invalid(path, value, text)
    for ranges, name in (
        (("169.254.0.0/16", "fe80::/10"), "link-local range (169.254.0.0/16, fe80::/10)"),
        (("224.0.0.0/24", "ff02::/16"), "link-local multicast range (224.0.0.0/24, ff02::/10)"),
    ):
        if any(found in ipaddress.ip_network(one) for one in ranges):
            yield invalid(path, value, f"may not be in the {name}")


def domain_name(value: str, path: str) -> Iterator[Cause]:
    """A domain name of at least two segments; it may end in a dot."""
    if not value:
        yield required(path)
        return
    name = value.removesuffix(".")
    problems = subdomain_problems(name)
    if problems:
        yield invalid(path, name, ",".join(problems))
    elif "." not in name:
        text = "should be a domain with at least two segments separated by dots"
        yield invalid(path, name, text)
    else:
        for one in name.split("."):
            found = label_problems(one)
            if found:
                yield invalid(path, one, ",".join(found))
                return


def network(value: str, path: str) -> Iterator[Cause]:
    """A CIDR."""
    try:
        if "/" not in value:
            raise ValueError
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        yield invalid(
            path, value, "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
        )


def selector(given: Tree | None, path: str) -> Iterator[Cause]:
    """A label selector."""
    if given is None:
        return
    yield from labels(given.get("matchLabels", {}), f"{path}.matchLabels")
    for at, term in enumerate(given.get("matchExpressions", ())):
        yield from selector_term(term, f"{path}.matchExpressions[{at}]")


def selector_term(term: Tree, path: str) -> Iterator[Cause]:
    """One requirement of a label selector."""
    yield from operator_values(term, path)
    yield from label_name(term["key"], f"{path}.key")
    yield from label_values(term.get("values", ()), f"{path}.values")


def is_empty_selector(given: Tree | None) -> bool:
    """True for a selector without requirements, which selects everything."""
    return not (given or {}).get("matchLabels") and not (given or {}).get("matchExpressions")


def matches(given: Tree | None, found: Mapping[str, str]) -> bool:
    """True if all requirements of a selector match; None selects nothing."""
    if given is None:
        return False
    if any(found.get(key) != value for key, value in given.get("matchLabels", {}).items()):
        return False
    return all(_holds(term, found) for term in given.get("matchExpressions", ()))


def _holds(term: Tree, found: Mapping[str, str]) -> bool:
    value = found.get(term["key"])
    match term["operator"]:
        case "In":
            return value is not None and value in term.get("values", ())
        case "NotIn":
            return value is None or value not in term.get("values", ())
        case "Exists":
            return value is not None
    return value is None


def immutable(new: Any, old: Any, path: str, printed: Any = None) -> Iterator[Cause]:
    """An immutable field. printed: the value to print instead of `new`."""
    if new != old:
        yield invalid(path, new if printed is None else printed, IMMUTABLE)


def formatted_selector(given: Tree | None) -> str:
    """A selector in one line, as scale shows it: `a=b,c in (d,e),f,!g`, sorted by key."""
    given = given or {}
    terms = [(key, f"{key}={value}") for key, value in given.get("matchLabels", {}).items()]
    for term in given.get("matchExpressions", ()):
        key, operator = term["key"], term["operator"]
        values = ",".join(sorted(term.get("values", ())))
        text = {
            "In": f"{key} in ({values})",
            "NotIn": f"{key} notin ({values})",
            "Exists": key,
            "DoesNotExist": f"!{key}",
        }[operator]
        terms.append((key, text))
    return ",".join(text for _, text in sorted(terms, key=lambda pair: pair[0]))


def quoted(value: str) -> str:
    """A text in double quotes."""
    return json.dumps(value, ensure_ascii=False)


def get(tree: Any, *steps: str) -> Any:
    """The value at a path; None if a step is missing."""
    for step in steps:
        if tree is None:
            return None
        tree = tree.get(step)
    return tree


def dry_run_causes(values: list[str]) -> list[Cause]:
    """A cause if `dryRun` has another value than All."""
    return [] if set(values) <= {"All"} else [not_supported("dryRun", values, ("All",))]
