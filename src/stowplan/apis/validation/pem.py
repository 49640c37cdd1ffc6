"""Blocks of PEM texts, and what is wrong with a certificate and its key, in Go's words.

Source: Go 1.26, encoding/pem and crypto/tls (X509KeyPair).
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import NamedTuple

CERTIFICATE = "CERTIFICATE"
_BLOCK = re.compile(
    rb"(?:^|\n)-----BEGIN ([^\n-]*)-----[ \t\r]*\n(.*?)-----END \1-----[ \t\r]*(?=\n|$)", re.DOTALL
)
_HEADER = re.compile(rb"\s*([^:\n]+):[^\n]*\n")


class PemBlock(NamedTuple):
    """One block. headers: how many lines of `key: value` it has before its bytes."""

    type: str
    headers: int
    content: bytes


def pem_blocks(text: bytes) -> list[PemBlock]:
    """The blocks of a text; what is between them does not count."""
    found = []
    for match in _BLOCK.finditer(text):
        body, headers = match[2], 0
        while (line := _HEADER.match(body)) is not None:
            body, headers = body[line.end() :], headers + 1
        try:
            content = base64.b64decode(b"".join(body.split()), validate=True)
        except binascii.Error:
            continue
        found.append(PemBlock(match[1].decode("utf-8", "replace"), headers, content))
    return found


def key_pair_problem(certificate: bytes, key: bytes) -> str:
    """Why certificate and key are no pair; "" if they are one."""
    blocks = pem_blocks(certificate)
    chain = [one for one in blocks if one.type == CERTIFICATE]
    if not chain:
        return _no_certificate([one.type for one in blocks])
    skipped = []
    for block in pem_blocks(key):
        if block.type == "PRIVATE KEY" or block.type.endswith(" PRIVATE KEY"):
            return _mismatch(chain[0].content, block.content)
        skipped.append(block.type)
    if not skipped:
        return "tls: failed to find any PEM data in key input"
    if skipped == [CERTIFICATE]:
        return "tls: found a certificate rather than a key in the PEM for the private key"
    return (
        'tls: failed to find PEM block with type ending in "PRIVATE KEY" in key input after'
        f" skipping PEM blocks of the following types: [{' '.join(skipped)}]"
    )


def _no_certificate(skipped: list[str]) -> str:
    head = "tls: failed to find"
    if not skipped:
        return f"{head} any PEM data in certificate input"
    if len(skipped) == 1 and skipped[0].endswith("PRIVATE KEY"):
        return (
            f"{head} certificate PEM data in certificate input, but did find a private key; PEM"
            " inputs may have been switched"
        )
    return (
        f'{head} "CERTIFICATE" PEM block in certificate input after skipping PEM blocks of the'
        f" following types: [{' '.join(skipped)}]"
    )


def _mismatch(certificate: bytes, key: bytes) -> str:
    # Imported here: the library is large, and most servers see no certificate.
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import (
        Encoding,
        PublicFormat,
        load_der_private_key,
    )

    try:
        public = x509.load_der_x509_certificate(certificate).public_key()
    except ValueError:
        return "x509: malformed certificate"
    try:
        private = load_der_private_key(key, None)
    except (ValueError, TypeError):
        return "tls: failed to parse private key"
    form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if type(public).__name__.strip("_")[:2] != type(private).__name__.strip("_")[:2]:
        return "tls: private key type does not match public key type"
    if private.public_key().public_bytes(*form) != public.public_bytes(*form):
        return "tls: private key does not match public key"
    return ""
