"""Certificates and keys in secrets: what Go says of a pair that is none."""

from __future__ import annotations

import base64
import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from stowplan.apis.validation.pem import key_pair_problem, pem_blocks

KEY, OTHER = (ec.derive_private_key(number, ec.SECP256R1()) for number in (7, 8))


def certificate() -> bytes:
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "x")])
    start = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name)
    builder = builder.public_key(KEY.public_key()).serial_number(1)
    builder = builder.not_valid_before(start).not_valid_after(start)
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.PEM)


def pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


CERTIFICATE = certificate()
OTHER_BLOCK = b"-----BEGIN X-----\nYQ==\n-----END X-----\n"


@pytest.mark.parametrize(
    ("first", "second", "text"),
    [
        (CERTIFICATE, pem(KEY), ""),
        (
            b"between " + CERTIFICATE,
            pem(KEY),
            "tls: failed to find any PEM data in certificate input",
        ),
        (b"text\n" + CERTIFICATE, OTHER_BLOCK + pem(KEY), ""),
        (CERTIFICATE, pem(OTHER), "tls: private key does not match public key"),
        (CERTIFICATE, b"", "tls: failed to find any PEM data in key input"),
        (CERTIFICATE, CERTIFICATE, "tls: found a certificate rather than a key in the PEM"),
        (pem(KEY), CERTIFICATE, "PEM inputs may have been switched"),
        (OTHER_BLOCK, pem(KEY), "after skipping PEM blocks of the following types: [X]"),
        (CERTIFICATE, OTHER_BLOCK, "after skipping PEM blocks of the following types: [X]"),
    ],
    # The signature of a certificate differs from process to process, and so would names made of it.
    ids=[
        "good", "text before the certificate", "text in lines of its own", "another key", "no key",
        "certificate twice", "switched", "no certificate", "another block",
    ],
)  # fmt: skip
def test_a_pair(first: bytes, second: bytes, text: str) -> None:
    found = key_pair_problem(first, second)
    assert text in found
    assert bool(text) == bool(found)


def test_headers_are_counted() -> None:
    (block,) = pem_blocks(b"-----BEGIN X-----\nA: b\nC: d\n\nYQ==\n-----END X-----\n")
    assert (block.headers, block.content) == (2, base64.b64decode("YQ=="))
