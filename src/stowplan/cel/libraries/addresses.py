"""IP addresses and networks in CEL.

Source: apiserver v1.36, pkg/cel/library/ip.go, cidr.go; Go 1.26, net/netip (messages).
"""

from __future__ import annotations

import ipaddress
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stowplan.cel.libraries.standard_library import STRING_FACTOR, traversal
from stowplan.cel.overloads import Library
from stowplan.cel.values import LIBRARY_KINDS, EvaluationError, ValueKind, read_digits, size_of

IP_TYPE, CIDR_TYPE = "net.IP", "net.CIDR"
_DIGITS = re.compile("[0-9]+")
_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_IPV4_OCTET_MAX = 255


@dataclass(frozen=True, slots=True)
class CelAddress:
    """An IP address."""

    address: _Address

    def __len__(self) -> int:
        return self.address.max_prefixlen // 8


@dataclass(frozen=True, slots=True)
class CelNetwork:
    """A network. address: as it was written, with the bits of the host. n_bits: of the prefix."""

    address: _Address
    n_bits: int

    def __len__(self) -> int:
        return math.ceil(self.n_bits / 8)

    @property
    def masked(self) -> CelNetwork:
        """The network without bits of a host."""
        shift = self.address.max_prefixlen - self.n_bits
        return CelNetwork(type(self.address)(int(self.address) >> shift << shift), self.n_bits)

    def contains(self, other: _Address) -> bool:
        """True for an address inside of the network."""
        shift = self.address.max_prefixlen - self.n_bits
        same = other.version == self.address.version
        return same and int(other) >> shift == int(self.address) >> shift


def _wrong_address(text: str, why: str, rest: str = "") -> str:
    quoted = _go_quoted(text)
    return f"ParseAddr({quoted}): {why}" + (f" (at {_go_quoted(rest)})" if rest else "")


def _go_quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _ipv4_problem(text: str) -> str:
    """Why Go refuses an IPv4 address, "" if it does not."""
    fields, digits = 0, ""
    for place, letter in enumerate(text):
        if letter.isascii() and letter.isdigit():
            if digits == "0":
                return _wrong_address(text, "IPv4 field has octet with leading zero")
            digits += letter
            if int(digits) > _IPV4_OCTET_MAX:
                return _wrong_address(text, "IPv4 field has value >255")
        elif letter == ".":
            if place in (0, len(text) - 1) or text[place - 1] == ".":
                return _wrong_address(text, "IPv4 field must have at least one digit", text[place:])
            fields += 1
            if fields == 4:
                return _wrong_address(text, "IPv4 address too long")
            digits = ""
        else:
            return _wrong_address(text, "unexpected character", text[place:])
    return _wrong_address(text, "IPv4 address too short") if fields < 3 else ""


def _ipv6_problem(text: str) -> str:
    """Why Go refuses an IPv6 address. Unproved: only the common causes have Go's words."""
    match = re.search(r"[^0-9a-fA-F:.%]", text)
    if match is not None and "%" not in text[: match.start()]:
        word = "each colon-separated field must have at least one digit"
        before = text[: match.start()]
        if before and before[-1] not in ":.":
            word = "unexpected character, want colon"
        return _wrong_address(text, word, text[match.start() :])
    for match in re.finditer(r"[0-9a-fA-F]+", text):
        if len(match.group()) > 4:
            why = "each group must have 4 or less digits"
            return _wrong_address(text, why, text[match.start() :])
    return _wrong_address(text, "address string too short")


def _address(text: str) -> tuple[_Address | None, str]:
    """(address, "") or (None, Go's error)."""
    mark = next((letter for letter in text if letter in ".:%"), "")
    if mark == ".":
        problem = _ipv4_problem(text)
        return (None, problem) if problem else (ipaddress.IPv4Address(text), "")
    if mark == ":":
        try:
            return ipaddress.IPv6Address(text), ""
        except ValueError:
            return None, _ipv6_problem(text)
    if mark == "%":
        return None, _wrong_address(text, "missing IPv6 address")
    return None, _wrong_address(text, "unable to parse IP")


def _is_mapped(address: _Address) -> bool:
    return isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is not None


def parse_address(text: str) -> CelAddress:
    """An address; raises EvaluationError with the original's text."""
    found, problem = _address(text)
    quoted = _go_quoted(text)
    if found is None:
        start = f"IP Address {quoted} parse error during conversion from string"
        raise EvaluationError(f"{start}: {problem}")
    if getattr(found, "scope_id", None):
        raise EvaluationError(f"IP address {quoted} with zone value is not allowed")
    if _is_mapped(found):
        raise EvaluationError(f"IPv4-mapped IPv6 address {quoted} is not allowed")
    return CelAddress(found)


def _prefix(text: str) -> tuple[CelNetwork | None, str]:
    """(network, "") or (None, Go's error)."""
    start = f"netip.ParsePrefix({_go_quoted(text)}): "
    left, slash, right = text.rpartition("/")
    if not slash:
        return None, f"{start}no '/'"
    found, problem = _address(left)
    if found is None:
        return None, start + problem
    if getattr(found, "scope_id", None):
        return None, f"{start}IPv6 zones cannot be present in a prefix"
    leading = len(right) > 1 and right[0] in "0+-"
    if leading or not right.isascii() or _DIGITS.fullmatch(right) is None:
        return None, f"{start}bad bits after slash: {_go_quoted(right)}"
    n_bits = read_digits(right)
    if n_bits > found.max_prefixlen:
        return None, f"{start}prefix length out of range"
    return CelNetwork(found, n_bits), ""


def parse_network(text: str) -> CelNetwork:
    """A network; raises EvaluationError with the original's text, which repeats its beginning."""
    found, problem = _prefix(text)
    if found is None:
        problem = f"network address parse error during conversion from string: {problem}"
    elif _is_mapped(found.address):
        problem = f"IPv4-mapped IPv6 address {_go_quoted(text)} is not allowed"
    else:
        return found
    raise EvaluationError(f"network address parse error during conversion from string: {problem}")


def _succeeds(read: Callable[[str], Any]) -> Callable[[str], bool]:
    def test(text: str) -> bool:
        try:
            read(text)
        except EvaluationError:
            return False
        return True

    return test


def format_network(network: CelNetwork) -> str:
    """`10.0.0.0/8`."""
    return f"{network.address}/{network.n_bits}"


def _is_global_unicast(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address) and int(address) == 2**32 - 1:
        return False
    special = address.is_unspecified, address.is_loopback, address.is_multicast
    return not any(special) and not address.is_link_local


def _is_link_local_multicast(address: _Address) -> bool:
    if isinstance(address, ipaddress.IPv4Address):
        return int(address) >> 8 == 0xE00000
    return int(address) >> 112 & 0xFF0F == 0xFF02


_TESTS: tuple[tuple[str, str, Callable[[_Address], bool]], ...] = (
    ("unspecified", "isUnspecified", lambda address: address.is_unspecified),
    ("loopback", "isLoopback", lambda address: address.is_loopback),
    ("link_local_multicast", "isLinkLocalMulticast", _is_link_local_multicast),
    ("link_local_unicast", "isLinkLocalUnicast", lambda address: address.is_link_local),
    ("global_unicast", "isGlobalUnicast", _is_global_unicast),
)


def _inside(network: CelNetwork, other: CelNetwork) -> bool:
    return network.n_bits <= other.n_bits and network.contains(other.address)


def _containment_cost(*, of_network: bool, parses: bool) -> Callable[[tuple[Any, ...], Any], int]:
    def cost(values: tuple[Any, ...], result: Any) -> int:
        size = size_of(values[0])
        total = math.ceil(2 * size * STRING_FACTOR)
        total += math.ceil(size * STRING_FACTOR) + 1 if of_network else 0
        return total + (math.ceil(size_of(values[1]) * STRING_FACTOR) if parses else 0)

    return cost


LIBRARY_KINDS[CelAddress] = ValueKind(IP_TYPE, lambda one, two: bool(one == two))
LIBRARY_KINDS[CelNetwork] = ValueKind(CIDR_TYPE, lambda one, two: bool(one == two))


def address_library() -> Library:
    """`ip`, `isIP`, `cidr`, `isCIDR` and what addresses and networks answer."""
    library = Library()
    add, read = library.add, traversal()
    add("string_to_ip", f"ip(string) {IP_TYPE}", parse_address, read)
    add("is_ip", "isIP(string) bool", _succeeds(parse_address), read)
    add("ip_is_canonical", "ip.isCanonical(string) bool",
        lambda text: str(parse_address(text).address) == text,
        traversal(0, 2 * STRING_FACTOR))  # fmt: skip
    add("ip_to_string", f"string({IP_TYPE}) string", lambda held: str(held.address))
    add("ip_family", f"{IP_TYPE}->family() int", lambda held: held.address.version)
    for word, name, test in _TESTS:

        def run(held: CelAddress, test: Callable[[_Address], bool] = test) -> bool:
            return test(held.address)

        add(f"ip_is_{word}", f"{IP_TYPE}->{name}() bool", run)
    add("string_to_cidr", f"cidr(string) {CIDR_TYPE}", parse_network, read)
    add("is_cidr", "isCIDR(string) bool", _succeeds(parse_network), read)
    add("cidr_to_string", f"string({CIDR_TYPE}) string", format_network)
    add("cidr_ip", f"{CIDR_TYPE}->ip() {IP_TYPE}", lambda held: CelAddress(held.address))
    add("cidr_prefix_length", f"{CIDR_TYPE}->prefixLength() int", lambda held: held.n_bits)
    add("cidr_masked", f"{CIDR_TYPE}->masked() {CIDR_TYPE}", lambda held: held.masked)
    add("cidr_contains_ip_string", f"{CIDR_TYPE}->containsIP(string) bool",
        lambda held, text: held.contains(parse_address(text).address),
        _containment_cost(of_network=False, parses=True))  # fmt: skip
    add("cidr_contains_ip_ip", f"{CIDR_TYPE}->containsIP({IP_TYPE}) bool",
        lambda held, other: held.contains(other.address),
        _containment_cost(of_network=False, parses=False))  # fmt: skip
    add("cidr_contains_cidr_string", f"{CIDR_TYPE}->containsCIDR(string) bool",
        lambda held, text: _inside(held, parse_network(text)),
        _containment_cost(of_network=True, parses=True))  # fmt: skip
    add("cidr_contains_cidr", f"{CIDR_TYPE}->containsCIDR({CIDR_TYPE}) bool", _inside,
        _containment_cost(of_network=True, parses=False))  # fmt: skip
    return library
