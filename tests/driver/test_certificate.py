"""The certificate that a cluster makes: what it says, and what clients accept it for."""

import contextlib
import ssl
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, SignatureAlgorithmOID

from stowplan.driver.certificate import SelfSignedCertificate, self_signed_certificate
from stowplan.driver.storage.credentials_files import serving_certificate

NAMES = ["127.0.0.1", "::1", "localhost", "stow.example", "bücher.example"]
NOW = 1_800_000_000.0


def tls_handshake(client: ssl.SSLObject, server: ssl.SSLObject, pairs: list[ssl.MemoryBIO]) -> None:
    """A TLS handshake in memory. Raises ssl.SSLError."""
    to_client, from_client, to_server, from_server = pairs
    for _ in range(4):
        for end in (client, server):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
        to_server.write(from_client.read())
        to_client.write(from_server.read())


def connect(made: SelfSignedCertificate, folder: Path, trusted: str, name: str) -> str:
    """The TLS version of a connection to `name` that trusts only `trusted`. Raises ssl.SSLError."""
    (folder / "server.pem").write_text(made.key + made.certificate)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(folder / "server.pem")
    asking = ssl.create_default_context(cadata=trusted)
    # Python 3.13 asks for the letter of RFC 5280 by default.
    asking.verify_flags |= ssl.VERIFY_X509_STRICT
    pairs = [ssl.MemoryBIO() for _ in range(4)]
    client = asking.wrap_bio(pairs[0], pairs[1], server_hostname=name)
    server = serving.wrap_bio(pairs[2], pairs[3], server_side=True)
    tls_handshake(client, server, pairs)
    return client.version() or ""


@pytest.mark.parametrize("name", NAMES)
def test_clients_accept_it_for_each_of_its_names(tmp_path: Path, name: str) -> None:
    made = self_signed_certificate(NAMES, datetime.now(UTC).timestamp())
    assert connect(made, tmp_path, made.certificate, name) == "TLSv1.3"


def test_clients_refuse_it_for_another_name_and_without_trust(tmp_path: Path) -> None:
    now = datetime.now(UTC).timestamp()
    made, other = (self_signed_certificate(NAMES, now) for _ in range(2))
    for name in ("other.example", "127.0.0.2"):
        with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
            connect(made, tmp_path, made.certificate, name)
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(made, tmp_path, other.certificate, "localhost")
    expired = self_signed_certificate(NAMES, NOW - 20 * 365 * 86400)
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        connect(expired, tmp_path, expired.certificate, "localhost")


def test_its_fields() -> None:
    made = self_signed_certificate(NAMES, NOW + 0.9)
    read = x509.load_pem_x509_certificate(made.certificate.encode())
    assert read.version is x509.Version.v3
    assert read.subject.rfc4514_string() == read.issuer.rfc4514_string() == "CN=stowplan"
    assert read.not_valid_before_utc == datetime(2027, 1, 15, 7, 55, tzinfo=UTC)
    assert read.not_valid_after_utc == datetime(2037, 1, 12, 7, 55, tzinfo=UTC)
    assert read.signature_algorithm_oid == SignatureAlgorithmOID.ECDSA_WITH_SHA256
    public = read.public_key()
    assert isinstance(public, ec.EllipticCurvePublicKey)
    assert public.curve.name == "secp256r1"
    assert made.key.startswith("-----BEGIN EC PRIVATE KEY-----\n")


def test_what_it_may_be_used_for() -> None:
    made = self_signed_certificate(NAMES, NOW)
    extensions = x509.load_pem_x509_certificate(made.certificate.encode()).extensions
    basic = extensions.get_extension_for_class(x509.BasicConstraints)
    assert basic.critical
    assert basic.value == x509.BasicConstraints(ca=True, path_length=None)
    usage = extensions.get_extension_for_class(x509.KeyUsage)
    assert usage.critical
    allowed = [name for name in vars(x509.KeyUsage) if getattr(usage.value, f"_{name}", False)]
    assert allowed == ["digital_signature", "key_cert_sign"]
    purposes = extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH]
    own = extensions.get_extension_for_class(x509.SubjectKeyIdentifier).value.digest
    issuer = extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value
    assert own == issuer.key_identifier
    names = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert [str(each.value) for each in names] == [*NAMES[:-1], "xn--bcher-kva.example"]


def test_key_and_certificate_fit_and_no_two_are_alike(tmp_path: Path) -> None:
    one, other = (self_signed_certificate(["localhost"], NOW) for _ in range(2))
    (tmp_path / "good.pem").write_text(one.key + one.certificate)
    (tmp_path / "bad.pem").write_text(other.key + one.certificate)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "good.pem")
    with pytest.raises(ssl.SSLError):
        context.load_cert_chain(tmp_path / "bad.pem")


def test_a_name_that_cannot_be_written_is_refused() -> None:
    with pytest.raises(ValueError):
        self_signed_certificate([f"{'a' * 64}.example"], NOW)


def test_the_library_is_loaded_only_to_make_one(tmp_path: Path) -> None:
    serving_certificate(tmp_path, "localhost", datetime.now(UTC).timestamp())
    program = (
        "import sys, stowplan.driver.local_scheduler, stowplan.driver.local_cluster as cluster\n"
        "from pathlib import Path\n"
        "cluster.serving_certificate(Path(sys.argv[1]), 'localhost', 0)\n"
        "print('cryptography' in sys.modules)\n"
        "cluster.serving_certificate(None, 'localhost', 0)\n"
        "print('cryptography' in sys.modules)\n"
    )
    extensions = subprocess.run(
        [sys.executable, "-c", program, tmp_path], capture_output=True, text=True, check=True
    )
    assert extensions.stdout.split() == ["False", "True"]
