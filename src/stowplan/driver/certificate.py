"""Self-signed certificate and key: kubectl sends its token over TLS only.

Its importers import it where a certificate is made: loading the library takes longer than all else
that the command loads to print its help.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

COMMON_NAME = "stowplan"
VALID_FOR = timedelta(days=3650)
_CLOCK_SKEW = timedelta(minutes=5)
_SERVER_ONLY = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH])
_KEY_USAGE = x509.KeyUsage(
    # For TLS handshakes, and for the signature of the certificate itself.
    digital_signature=True,
    key_cert_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    crl_sign=False,
    encipher_only=False,
    decipher_only=False,
)


class SelfSignedCertificate(NamedTuple):
    """Certificate and key of a TLS server, as PEM text. key is secret."""

    key: str
    certificate: str


def self_signed_certificate(names: Iterable[str], now: float) -> SelfSignedCertificate:
    """A new certificate for these host names and addresses, valid for ten years.

    now: Unix seconds. Raises ValueError for a host name that cannot be written in a certificate.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, COMMON_NAME)])
    start = datetime.fromtimestamp(int(now), UTC) - _CLOCK_SKEW
    key_id = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    authority_key = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(key_id)
    subject_alt_name = x509.SubjectAlternativeName([_general_name(name) for name in names])
    certificate = (
        x509.CertificateBuilder(issuer_name=name, subject_name=name, public_key=key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + VALID_FOR)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(_KEY_USAGE, critical=True)
        .add_extension(_SERVER_ONLY, critical=False)
        .add_extension(key_id, critical=False)
        .add_extension(authority_key, critical=False)
        .add_extension(subject_alt_name, critical=False)
        .sign(key, hashes.SHA256())
    )
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    key_text = key.private_bytes(pem, serialization.PrivateFormat.TraditionalOpenSSL, plain)
    return SelfSignedCertificate(key_text.decode(), certificate.public_bytes(pem).decode())


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name.encode("idna").decode("ascii"))
