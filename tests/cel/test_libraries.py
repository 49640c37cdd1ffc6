"""Addresses, URLs, named formats and the other libraries that Kubernetes adds to CEL."""

from __future__ import annotations

from typing import Any

import pytest

from stowplan.apiserver.expressions.environments import api_library
from stowplan.cel.cel_types import cel_type
from stowplan.cel.program import Environment
from stowplan.cel.syntax_tree import CompileError

ENVIRONMENT = Environment({}, api_library())


def found(text: str) -> Any:
    """The value, or the error."""
    outcome = ENVIRONMENT.compile(text).outcome({}, 1_000_000)
    return outcome.error or outcome.value


@pytest.mark.parametrize(
    "text",
    [
        "ip('10.0.0.1').family() == 4 && ip('::1').family() == 6",
        "ip('10.0.0.1').isGlobalUnicast() && !ip('127.0.0.1').isGlobalUnicast()",
        "ip('224.0.0.1').isLinkLocalMulticast() && !ip('224.0.1.1').isLinkLocalMulticast()",
        "ip('ff02::1').isLinkLocalMulticast() && ip('fe80::1').isLinkLocalUnicast()",
        "!isIP('1.2.3') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0') && isIP('::')",
        "!ip.isCanonical('2001:DB8::1') && ip.isCanonical('2001:db8::1')",
        "cidr('10.0.0.0/8').containsIP('10.9.9.9') && !cidr('10.0.0.0/8').containsIP(ip('::1'))",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16')",
        "!cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8')",
        "cidr('10.1.2.3/8').ip() == ip('10.1.2.3')",
        "string(cidr('2001:db8::/32')) == '2001:db8::/32' && cidr('::/0').prefixLength() == 0",
        "!isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0/08') && isCIDR('::/128')",
        "url('https://u@a.b:80/x?k=1&k=2#f').getHost() == 'a.b:80'",
        "url('https://[::1]:80/').getHostname() == '::1' && url('https://a').getPort() == ''",
        "url('https://a/x y').getEscapedPath() == '/x%20y' && url('/p').getScheme() == ''",
        "url('https://a/?k=1&k=2').getQuery()['k'] == ['1', '2']",
        "isURL('/a') && !isURL('a/b') && !isURL('') && isURL('https://a')",
        "format.named('dns1123Label').value() == format.dns1123Label()",
        "format.dns1123Label().validate('ok') == optional.none()",
        "format.uuid().validate('x').value() == ['does not match the UUID format']",
        "!format.named('nosuch').hasValue()",
        "string(1000000.0) == '1e+06' && string(100000.0) == '100000'",
        "'%s'.format([1000000.0]) == '1000000'",
    ],
)
def test_they_hold(text: str) -> None:
    assert found(text) is True


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("ip('1.2.3')", 'ParseAddr("1.2.3"): IPv4 address too short'),
        ("ip('1.2.3.256')", 'ParseAddr("1.2.3.256"): IPv4 field has value >255'),
        ("ip('01.2.3.4')", "IPv4 field has octet with leading zero"),
        ("ip('fe80::1%e')", 'IP address "fe80::1%e" with zone value is not allowed'),
        ("cidr('10.0.0.0')", "netip.ParsePrefix(\"10.0.0.0\"): no '/'"),
        ("cidr('10.0.0.0/33')", "prefix length out of range"),
        ("url('a')", 'parse "a": invalid URI for request'),
        ("url('https://a b')", 'invalid character " " in host name'),
        ("url('https://a/%zz')", 'invalid URL escape "%zz"'),
        ("duration(dyn('1x'))", "'string' to 'google.protobuf.Duration'"),
        ("'a'.matches('(' + '')", "error parsing regexp: missing closing ): `(`"),
    ],
)
def test_errors_have_the_originals_words(text: str, error: str) -> None:
    assert error in str(found(text))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("duration('1x') > duration('1s')", "1:10: invalid duration argument"),
        ("timestamp('x') > timestamp('y')", "1:11: invalid timestamp argument"),
        ("'a'.matches('(')", "1:13: invalid matches argument"),
        ("1 = 1", "token recognition error at: '= '"),
        ("'abc", "token recognition error at: ''abc'"),
        ("Object{a: 1}", "undeclared reference to 'Object'"),
    ],
)
def test_what_does_not_compile(text: str, error: str) -> None:
    with pytest.raises(CompileError) as caught:
        ENVIRONMENT.compile(text)
    assert error in str(caught.value)


def test_a_constant_that_cannot_be_converted_is_a_fault() -> None:
    program = ENVIRONMENT.compile("int('x') == 1")
    assert program.fault == "type conversion error from 'string' to 'int'"
    assert ENVIRONMENT.compile("int('1') == 1").fault == ""


def found_of(text: str, value: str) -> Any:
    """The error of an expression over a string `s`."""
    environment = Environment({"s": cel_type("string")}, api_library())
    return environment.compile(text).outcome({"s": value}, 10_000_000).error


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("duration(s + 'h') > duration('1h')", "integer overflow"),
        ("int(s) == 1", "type conversion error from 'string' to 'int'"),
        ("uint(s) == 1u", "type conversion error from 'string' to 'uint'"),
        ("int('-+' + s) == 5", "type conversion error from 'string' to 'int'"),
        ("cidr('::/' + s).prefixLength() == 0", "network address parse error"),
        ("semver(s + '.0.0').major() == 1", "value out of range"),
        ("('%.' + s + 'f').format([1.0]) == ''", "value out of range"),
        ("('%.' + 'f').format([1.0]) == s", "invalid syntax"),
        ("('%.2000000000' + 'f').format([1.0]) == s", "exceeds the limit of 10000000"),
        ("s.replace('9', s) == ''", "exceeds the limit of 10000000"),
        ("lists.range(5000).map(x, '').join(s) == ''", "exceeds the limit of 10000000"),
    ],
)
def test_long_numbers_and_strings_are_evaluation_errors(text: str, error: str) -> None:
    assert error in found_of(text, "9" * 5000)


def test_long_literals_do_not_compile() -> None:
    with pytest.raises(CompileError, match="invalid int literal"):
        ENVIRONMENT.compile(f"{'9' * 5000} < 1")
    assert found(f"{'0' * 5000}7 == 7") is True


def test_a_call_that_costs_too_much_is_not_made() -> None:
    """A hundred million comparisons take a minute; their cost is known before."""
    outcome = ENVIRONMENT.compile("lists.range(10000).distinct().size()").outcome({}, 1_000_000)
    assert outcome.is_over


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("duration(s) == duration('1s')", "type conversion error from 'string'"),
        ("quantity(s).isInteger()", "quantities must match the regular expression"),
    ],
)
def test_a_long_text_of_no_form_is_refused_in_one_look(text: str, error: str) -> None:
    """Patterns that could divide it in many ways took the square of its length: days for this."""
    assert error in found_of(text, "9" * 2_000_000 + "x")
