"""Listen addresses: where a server of this process listens, and with which certificate.

Apart from the servers, whose HTTP library takes long to import.
"""

from __future__ import annotations

import platform
import ssl
import tempfile
import time
from pathlib import Path

import msgspec

from stowplan.driver.loopback import is_loopback

DEFAULT_LISTEN_ADDRESS = "127.0.0.1:10259"


class AddressError(ValueError):
    """An address that cannot be listened on."""


class ListenAddress(msgspec.Struct, frozen=True):
    """Where to listen. certificate, key: files, "" for a self-signed certificate. client_ca: file
    of the CA that must have signed client certificates, "" to require none."""

    host: str
    port: int
    certificate: str = ""
    key: str = ""
    client_ca: str = ""

    @property
    def is_secure(self) -> bool:
        """True for TLS."""
        return not self.is_loopback or bool(self.certificate or self.client_ca)

    @property
    def is_loopback(self) -> bool:
        """True for a loopback address."""
        return is_loopback(self.host)


def parse_listen_address(text: str, certificate: str = "", key: str = "") -> ListenAddress | None:
    """Parse HOST:PORT, or PORT on loopback; None for "0" or "", which disable the server. Raises
    AddressError."""
    if text in ("", "0"):
        return None
    host, _, port = text.rpartition(":")
    host = host.strip("[]") or ("127.0.0.1" if ":" not in text else "0.0.0.0")
    if not port.isdecimal() or int(port) > 65535:
        raise AddressError(f"listen: Invalid value: {text!r}: expected HOST:PORT")
    if bool(certificate) != bool(key):
        raise AddressError("--tls-cert-file and --tls-private-key-file must be set together")
    return ListenAddress(host, int(port), certificate, key)


def server_tls_context(address: ListenAddress) -> ssl.SSLContext:
    """TLS settings of a server, with a self-signed certificate if none is given; raises
    AddressError."""
    read = address.certificate
    try:
        context = _context(address)
        if read := address.client_ca:
            context.load_verify_locations(read)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ssl.SSLError) as problem:
        raise AddressError(f"TLS: {read}: {problem.strerror or problem}") from None
    return context


def _context(address: ListenAddress) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if address.certificate:
        context.load_cert_chain(address.certificate, address.key)
        return context
    # Not at the top: loading the library takes long, and few status pages are served over TLS.
    from stowplan.driver.certificate import self_signed_certificate

    own = self_signed_certificate(["localhost", platform.node(), "127.0.0.1"], time.time())
    with tempfile.NamedTemporaryFile("w", prefix="stowplan-") as file:
        file.write(own.certificate + own.key)
        file.flush()
        context.load_cert_chain(Path(file.name))
    return context
