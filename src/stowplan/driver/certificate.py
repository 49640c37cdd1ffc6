"""Self-signed certificate and key: kubectl sends its token over TLS only.

An ECDSA key on the curve P-256, and the few structures of X.509 that clients look at. The key signs
once, its own certificate, and TLS handshakes are done by OpenSSL; this signature is not protected
against timing attacks.

Source: RFC 5280 (certificates), RFC 5915 (keys), FIPS 186-5 (signatures), SEC 2 (the curve).
"""

from __future__ import annotations

import base64
import hashlib
import secrets
import textwrap
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple

_P = 0xFFFFFFFF00000001000000000000000000000000FFFFFFFFFFFFFFFFFFFFFFFF
_N = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
_G = (
    0x6B17D1F2E12C4247F8BCE6E563A440F277037D812DEB33A0F4A13945D898C296,
    0x4FE342E2FE1A7F9B8EE7EB4A7C0F9E162BCE33576B315ECECBB6406837BF51F5,
)
_EC_KEY, _P256, _ECDSA_SHA256 = "1.2.840.10045.2.1", "1.2.840.10045.3.1.7", "1.2.840.10045.4.3.2"
_COMMON_NAME = "2.5.4.3"
_SUBJECT_KEY, _KEY_USAGE, _OTHER_NAMES = "2.5.29.14", "2.5.29.15", "2.5.29.17"
_BASIC, _AUTHORITY_KEY, _PURPOSES = "2.5.29.19", "2.5.29.35", "2.5.29.37"
_SERVER = "1.3.6.1.5.5.7.3.1"
_VALID = timedelta(days=3650)

CurvePoint = tuple[int, int]


class SelfSignedCertificate(NamedTuple):
    """Certificate and key of a TLS server, as PEM text. key is secret."""

    key: str
    certificate: str


def self_signed_certificate(names: Iterable[str], now: float) -> SelfSignedCertificate:
    """A new certificate for these host names and addresses, valid for ten years."""
    private = secrets.randbelow(_N - 1) + 1
    public = _multiply_point(private, _G)
    assert public is not None
    point = b"\x04" + public[0].to_bytes(32, "big") + public[1].to_bytes(32, "big")
    body = _body(point, list(names), datetime.fromtimestamp(int(now), UTC))
    signed = _sequence(body, _sequence(_object(_ECDSA_SHA256)), _bits(_signature(private, body)))
    key = _sequence(
        _integer(1),
        _tagged(0x04, private.to_bytes(32, "big")),
        _tagged(0xA0, _object(_P256)),
        _tagged(0xA1, _bits(point)),
    )
    return SelfSignedCertificate(_pem("EC PRIVATE KEY", key), _pem("CERTIFICATE", signed))


def _body(point: bytes, names: list[str], moment: datetime) -> bytes:
    name = _sequence(_set(_sequence(_object(_COMMON_NAME), _tagged(0x0C, b"stowplan"))))
    start = moment - timedelta(minutes=5)
    public = _sequence(_sequence(_object(_EC_KEY), _object(_P256)), _bits(point))
    key_id = hashlib.sha256(point).digest()[:20]
    extensions = _sequence(
        _extension(_BASIC, _sequence(_tagged(0x01, b"\xff")), critical=True),
        # Digital signature and certificate signing: bits 0 and 5.
        _extension(_KEY_USAGE, _tagged(0x03, b"\x02\x84"), critical=True),
        _extension(_PURPOSES, _sequence(_object(_SERVER))),
        _extension(_SUBJECT_KEY, _tagged(0x04, key_id)),
        _extension(_AUTHORITY_KEY, _sequence(_tagged(0x80, key_id))),
        _extension(_OTHER_NAMES, _sequence(*(_other_name(each) for each in names))),
    )
    return _sequence(
        _tagged(0xA0, _integer(2)),
        _integer(secrets.randbits(120) | 1),
        _sequence(_object(_ECDSA_SHA256)),
        name,
        _sequence(_time(start), _time(start + _VALID)),
        name,
        public,
        _tagged(0xA3, extensions),
    )


# The curve.


def _add_points(a: CurvePoint | None, b: CurvePoint | None) -> CurvePoint | None:
    """The sum of two points; None is the point at infinity."""
    if a is None or b is None:
        return a or b
    if a[0] == b[0]:
        if (a[1] + b[1]) % _P == 0:
            return None
        slope = 3 * (a[0] * a[0] - 1) * pow(2 * a[1], -1, _P)
    else:
        slope = (b[1] - a[1]) * pow(b[0] - a[0], -1, _P)
    x = (slope * slope - a[0] - b[0]) % _P
    return x, (slope * (a[0] - x) - a[1]) % _P


def _multiply_point(factor: int, point: CurvePoint) -> CurvePoint | None:
    total: CurvePoint | None = None
    doubled: CurvePoint | None = point
    while factor:
        if factor & 1:
            total = _add_points(total, doubled)
        doubled = _add_points(doubled, doubled)
        factor >>= 1
    return total


def _signature(private: int, message: bytes) -> bytes:
    digest = int.from_bytes(hashlib.sha256(message).digest(), "big")
    while True:
        nonce = secrets.randbelow(_N - 1) + 1
        point = _multiply_point(nonce, _G)
        assert point is not None
        r = point[0] % _N
        s = pow(nonce, -1, _N) * (digest + r * private) % _N
        if r and s:
            return _sequence(_integer(r), _integer(s))


# DER: a tag, a length, a content.


def _tagged(tag: int, content: bytes) -> bytes:
    length = len(content)
    if length < 0x80:
        return bytes((tag, length)) + content
    size = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(size))) + size + content


def _sequence(*parts: bytes) -> bytes:
    return _tagged(0x30, b"".join(parts))


def _set(*parts: bytes) -> bytes:
    return _tagged(0x31, b"".join(parts))


def _integer(value: int) -> bytes:
    return _tagged(0x02, value.to_bytes(value.bit_length() // 8 + 1, "big"))


def _bits(content: bytes) -> bytes:
    return _tagged(0x03, b"\x00" + content)


def _object(dotted: str) -> bytes:
    first, second, *rest = (int(part) for part in dotted.split("."))
    content = bytes((40 * first + second,))
    for value in rest:
        groups = [value & 0x7F]
        while value := value >> 7:
            groups.append(0x80 | value & 0x7F)
        content += bytes(reversed(groups))
    return _tagged(0x06, content)


def _time(moment: datetime) -> bytes:
    if moment.year < 2050:
        return _tagged(0x17, moment.strftime("%y%m%d%H%M%SZ").encode())
    return _tagged(0x18, moment.strftime("%Y%m%d%H%M%SZ").encode())


def _extension(kind: str, content: bytes, *, critical: bool = False) -> bytes:
    flag = _tagged(0x01, b"\xff") if critical else b""
    return _sequence(_object(kind), flag, _tagged(0x04, content))


def _other_name(name: str) -> bytes:
    try:
        return _tagged(0x87, ip_address(name).packed)
    except ValueError:
        return _tagged(0x82, name.encode("idna"))


def _pem(label: str, content: bytes) -> str:
    lines = "\n".join(textwrap.wrap(base64.b64encode(content).decode(), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"
