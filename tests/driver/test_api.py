"""API client: changing credentials, TLS, proxies, guarded writes."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import stat
import tempfile
import time
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from cryptography.x509 import ExtendedKeyUsage
from cryptography.x509.oid import ExtendedKeyUsageOID

from stowplan.client.exec_credentials import ExecSpec
from stowplan.client.kubeconfig import ClientConfig, DataOrFile
from stowplan.client.requests import JSON, ApiRequest
from stowplan.client.responses import ApiResponse
from stowplan.driver import certificate
from stowplan.driver.certificate import SelfSignedCertificate, self_signed_certificate
from stowplan.driver.client.api_client import LEASE_EXPIRED_TEXT, ApiClient
from stowplan.driver.client.credentials import (
    CredentialError,
    auth_provider_token,
    client_tls_context,
    proxy_of,
)
from stowplan.driver.client.kubeconfig_loading import load_client_config

GET = ApiRequest("GET", "/api/v1/pods")
POST = ApiRequest("POST", "/api/v1/pods", (), b"{}", JSON)


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


class Server:
    """takes: the valid token."""

    def __init__(self) -> None:
        self.takes = "first"
        self.asked: list[tuple[str, str]] = []
        self.headers: list[Any] = []
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        stated = request.headers.get("Authorization", "")
        self.asked.append((request.method, stated))
        self.headers.append(request.headers)
        good = stated == f"Bearer {self.takes}"
        return web.json_response({}, status=200 if good else 401)


@asynccontextmanager
async def serving(
    context: ssl.SSLContext | None = None, server: Server | None = None
) -> AsyncIterator[Server]:
    server = server or Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context).start()
    scheme = "http" if context is None else "https"
    server.url = f"{scheme}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield server
    finally:
        await runner.cleanup()


def test_a_token_in_a_file_is_read_again_when_it_is_refused(tmp_path: Path) -> None:
    async def steps() -> None:
        file = tmp_path / "token"
        file.write_text("first\n")
        async with serving() as server:
            async with ApiClient(ClientConfig(server.url, "t", token_file=str(file))) as api:
                assert (await api.send(GET)).status == 200
                file.write_text("second\n")
                assert (await api.send(GET)).status == 200
                server.takes = "second"
                assert (await api.send(POST)).status == 200
                file.unlink()
                assert (await api.send(GET)).status == 200
            assert [stated for _, stated in server.asked][-3:] == [
                "Bearer first",
                "Bearer second",
                "Bearer second",
            ]

    run(steps())


def program(tmp_path: Path, body: str) -> ExecSpec:
    file = tmp_path / "login"
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return ExecSpec(str(file), env=(("WHO", "me"),))


GIVES = """\
n=$(cat "$0.n" 2>/dev/null || echo 0); n=$((n + 1)); echo $n > "$0.n"
printf '{"kind":"ExecCredential","apiVersion":"client.authentication.k8s.io/v1",'
printf '"status":{"token":"%s%s","expirationTimestamp":"%s"}}' "$WHO" "$n" "$1"
"""


def test_a_program_is_run_again_when_it_is_refused_or_what_it_gave_is_over(tmp_path: Path) -> None:
    async def steps() -> None:
        spec = program(tmp_path, GIVES)
        async with serving() as server:
            lasting = ExecSpec(spec.command, ("2099-01-01T00:00:00Z",), spec.env)
            server.takes = "me1"
            async with ApiClient(ClientConfig(server.url, "t", run=lasting)) as api:
                assert (await api.send(GET)).status == 200
                assert (await api.send(GET)).status == 200
                server.takes = "me2"
                assert (await api.send(GET)).status == 200
            assert [stated for _, stated in server.asked] == [
                "Bearer me1",
                "Bearer me1",
                "Bearer me1",
                "Bearer me2",
            ]
            over = ExecSpec(spec.command, ("2020-01-01T00:00:00Z",), spec.env)
            server.takes = "me4"
            async with ApiClient(ClientConfig(server.url, "t", run=over)) as api:
                await api.send(GET)
            assert server.asked[-1][1] == "Bearer me4"

    run(steps())


@pytest.mark.parametrize(
    ("body", "text"),
    [("exit 3", "failed with exit code 3"), ("echo no", "expected an ExecCredential")],
)
def test_a_failed_exec_plugin_is_reported(tmp_path: Path, body: str, text: str) -> None:
    async def steps() -> None:
        async with ApiClient(
            ClientConfig("http://127.0.0.1:1", "f", run=program(tmp_path, body))
        ) as a:
            answer = await a.send(GET)
            assert answer.status == 0
            assert text in answer.fault

    run(steps())


def test_a_missing_exec_plugin_is_reported_with_its_hint() -> None:
    async def steps() -> None:
        spec = ExecSpec("stowplan-no-such-program", hint="get it at example.com")
        async with ApiClient(ClientConfig("http://127.0.0.1:1", "f", run=spec)) as api:
            assert "get it at example.com" in (await api.send(GET)).fault

    run(steps())


def test_basic_authentication_and_impersonation_headers_are_sent() -> None:
    async def steps() -> None:
        async with serving() as server:
            who = ClientConfig(
                server.url,
                "t",
                username="u",
                password="p",
                headers=(("Impersonate-User", "x"), ("Impersonate-Group", "a")),
            )
            async with ApiClient(who) as api:
                await api.send(GET)
            pair = base64.b64encode(b"u:p").decode()
            assert server.asked[0][1] == f"Basic {pair}"
            assert server.headers[0]["Impersonate-Group"] == "a"
            assert server.headers[0]["User-Agent"].startswith("stowplan/")

    run(steps())


def test_certificates_are_verified_unless_disabled() -> None:
    async def steps() -> None:
        own = self_signed_certificate(["localhost", "127.0.0.1"], time.time())
        other = self_signed_certificate(["localhost", "127.0.0.1"], time.time())
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        with tempfile.NamedTemporaryFile("w") as file:
            file.write(own.certificate + own.key)
            file.flush()
            context.load_cert_chain(file.name)
        async with serving(context) as server:
            for ca, is_insecure, works in (
                (own.certificate, False, True),
                (other.certificate, False, False),
                ("", False, False),
                ("", True, True),
            ):
                blob = DataOrFile(data=ca.encode())
                how = ClientConfig(server.url, "t", token="first", ca=blob, is_insecure=is_insecure)
                async with ApiClient(how) as api:
                    answer = await api.send(GET)
                    assert (answer.status == 200) == works, answer.fault

    run(steps())


class Doorkeeper(Server):
    """Takes the certificate with one serial number. shown: the serial numbers that came."""

    def __init__(self) -> None:
        super().__init__()
        self.serials: list[tuple[str, str]] = []

    async def answer(self, request: web.Request) -> web.Response:
        assert request.transport is not None
        serials = (request.transport.get_extra_info("peercert") or {}).get("serialNumber", "")
        self.serials.append((request.method, serials))
        return web.json_response({}, status=200 if serials == self.takes else 401)


@asynccontextmanager
async def guarded_door(
    clients: list[SelfSignedCertificate],
) -> AsyncIterator[tuple[Doorkeeper, DataOrFile]]:
    """A server that asks for certificates, and how it is trusted."""
    own = self_signed_certificate(["127.0.0.1"], time.time())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    with tempfile.NamedTemporaryFile("w") as file:
        file.write(own.certificate + own.key)
        file.flush()
        context.load_cert_chain(file.name)
    for one in clients:
        context.load_verify_locations(cadata=one.certificate)
    context.verify_mode = ssl.CERT_OPTIONAL
    async with serving(context, Doorkeeper()) as server:
        assert isinstance(server, Doorkeeper)
        yield server, DataOrFile(data=own.certificate.encode())


def for_clients(monkeypatch: pytest.MonkeyPatch, n: int) -> list[tuple[SelfSignedCertificate, str]]:
    """Certificates that clients may show, and their serial numbers."""
    clients_only = ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    monkeypatch.setattr(certificate, "_SERVER_ONLY", clients_only)
    made = [self_signed_certificate([], time.time()) for _ in range(n)]
    monkeypatch.undo()
    found = []
    for one in made:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=one.certificate)
        found.append((one, str(context.get_ca_certs()[0]["serialNumber"])))
    return found


def test_the_client_certificate_is_sent_on_every_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def steps() -> None:
        [(mine, number)] = for_clients(monkeypatch, 1)
        async with guarded_door([mine]) as (server, ca):
            server.takes = number
            serials = {
                "certificate": DataOrFile(data=mine.certificate.encode()),
                "key": DataOrFile(data=mine.key.encode()),
            }
            for more, code in ((serials, 200), ({}, 401)):
                async with ApiClient(ClientConfig(server.url, "t", ca=ca, **more)) as api:
                    assert (await api.send(GET)).status == code
                    assert (await api.send(POST)).status == code
            assert server.serials == [("GET", number), ("POST", number), ("GET", ""), ("POST", "")]

    run(steps())


GIVES_CERTIFICATES = """\
n=$(cat "$0.n" 2>/dev/null || echo 0); n=$((n + 1)); echo $n > "$0.n"
cat "$0.$n"
"""


def giving(tmp_path: Path, given: list[SelfSignedCertificate]) -> ExecSpec:
    """A program that gives one after the other."""
    spec = program(tmp_path, GIVES_CERTIFICATES)
    for i, one in enumerate(given):
        stated = {"clientCertificateData": one.certificate, "clientKeyData": one.key}
        kind = {"kind": "ExecCredential", "apiVersion": ExecSpec.VERSIONS[0]}
        Path(f"{spec.command}.{i + 1}").write_text(json.dumps(kind | {"status": stated}))
    return spec


def test_a_new_client_certificate_is_sent_after_a_refusal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By whoever only follows, too; and of many that are refused at once one connects anew."""
    n_opened = 0
    opens = ApiClient._open

    async def opened(api: ApiClient) -> Any:
        nonlocal n_opened
        n_opened += 1
        return await opens(api)

    async def steps() -> None:
        made = for_clients(monkeypatch, 3)
        monkeypatch.setattr(ApiClient, "_open", opened)
        async with guarded_door([one for one, _ in made]) as (server, ca):
            spec = giving(tmp_path, [one for one, _ in made])
            async with ApiClient(ClientConfig(server.url, "t", ca=ca, run=spec)) as api:
                server.takes = made[0][1]
                assert (await api.send(GET)).status == 200
                server.takes = made[1][1]
                async with api.stream(GET) as refused:
                    assert isinstance(refused, ApiResponse)
                    assert refused.status == 401
                async with api.stream(GET) as stream:
                    assert not isinstance(stream, ApiResponse)
                assert n_opened == 2
                # Two are refused while the program runs.
                server.takes = made[2][1]
                answers = await asyncio.gather(api.send(POST), api.send(GET), api.send(POST))
                assert [answer.status for answer in answers] == [200, 200, 200]
                assert n_opened == 3

    run(steps())


def test_an_invalid_certificate_is_reported() -> None:
    async def steps() -> None:
        cut = DataOrFile(data=b"-----BEGIN X-----")
        missing = DataOrFile(file="/no/such/ca")
        for ca, text in (
            (cut, "f: certificate auth"),
            (missing, "unable to read /no/such/ca"),
        ):
            with pytest.raises(CredentialError, match=text):
                async with ApiClient(ClientConfig("https://x", "f", ca=ca)):
                    pass

    run(steps())


def test_a_bundle_may_have_comments() -> None:
    own = self_signed_certificate(["localhost"], time.time()).certificate.encode()
    bundle = "# Autorité de confiance\n".encode() + own + "# und noch jemand: Ä\n".encode()
    assert len(client_tls_context(bundle, b"", b"", "f").get_ca_certs()) == 1


def test_strict_x509_checks_of_python_are_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """From 3.13 on a context begins with that."""
    made = ssl.create_default_context

    def strict(**more: Any) -> ssl.SSLContext:
        context = made(**more)
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return context

    monkeypatch.setattr(ssl, "create_default_context", strict)
    context = client_tls_context(b"", b"", b"", "f")
    assert not context.verify_flags & ssl.VERIFY_X509_STRICT
    assert (context.verify_mode, context.check_hostname) == (ssl.CERT_REQUIRED, True)


LOCKED = f"""\
-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-128-CBC,{"0" * 32}

{"A" * 64}
-----END EC PRIVATE KEY-----
"""


def test_an_encrypted_key_is_refused_without_a_prompt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OpenSSL asks whoever sits before the terminal unless a password is given."""
    given = []
    loads = ssl.SSLContext.load_cert_chain

    def loaded(context: ssl.SSLContext, path: str, password: str | None = None) -> None:
        given.append(password)
        loads(context, path, password=password or "")

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", loaded)
    own = self_signed_certificate(["localhost"], time.time()).certificate.encode()
    with pytest.raises(CredentialError, match="client certificate and key"):
        client_tls_context(b"", own, LOCKED.encode(), "f")
    assert given == [""]


@pytest.mark.parametrize(
    ("server", "goes_directly"),
    [
        ("https://10.96.0.1:443", True),
        ("https://[fd00::1]:6443", True),
        ("https://api.corp", True),
        ("https://kubernetes.default.svc", True),
        ("https://11.0.0.1", False),
        ("https://10.example.com", False),
        ("https://127.0.0.1:6443", True),
    ],
)
def test_no_proxy_entries(
    monkeypatch: pytest.MonkeyPatch, server: str, goes_directly: bool
) -> None:
    monkeypatch.setenv("no_proxy", "10.0.0.0/8, fd00::/8,*.corp,.svc,nonsense/8")
    for stated in ("http://proxy:3128", "proxy:3128"):
        monkeypatch.setenv("https_proxy", stated)
        wanted = None if goes_directly else "http://proxy:3128"
        assert proxy_of(ClientConfig(server, "t")) == wanted


def test_requests_go_through_the_proxy() -> None:
    async def steps() -> None:
        async with serving() as proxy:
            how = ClientConfig("http://api.invalid", "t", token="first", proxy=proxy.url)
            async with ApiClient(how) as api:
                assert (await api.send(GET)).status == 200

    run(steps())


# Writes that are held back.


def test_writes_are_held_back_after_the_lease_expires_and_reads_are_not() -> None:
    async def steps() -> None:
        async with serving() as server:
            may = True
            async with ApiClient(ClientConfig(server.url, "t", token="first"), lambda: may) as api:
                assert (await api.send(POST)).status == 200
                may = False
                answer = await api.send(POST)
                assert (answer.status, answer.fault) == (0, LEASE_EXPIRED_TEXT)
                assert (await api.send(GET)).status == 200
                may = True
                assert (await api.send(POST)).status == 200
            assert [method for method, _ in server.asked] == ["POST", "GET", "POST"]

    run(steps())


@pytest.mark.parametrize("n_asked", range(1, 4))
@pytest.mark.parametrize("through_proxy", [False, True])
def test_the_check_runs_directly_before_bytes_are_sent(n_asked: int, through_proxy: bool) -> None:
    """However late the lease ends, what the guard has not allowed last does not leave."""

    async def steps() -> None:
        async with serving() as server:
            asked = 0

            def write_check() -> bool:
                nonlocal asked
                asked += 1
                return asked < n_asked

            how = ClientConfig(server.url, "t", token="first")
            if through_proxy:
                how = ClientConfig("http://api.invalid", "t", token="first", proxy=server.url)
            async with ApiClient(how, write_check) as api:
                answer = await api.send(POST)
            # Through a proxy two looks: with the connection at hand, and with the bytes; else both
            # are one.
            leaves = n_asked > (2 if through_proxy else 1)
            assert answer.status == (200 if leaves else 0)
            assert len(server.asked) == (1 if leaves else 0)

    run(steps())


def test_every_request_is_counted_watches_too() -> None:
    async def steps() -> None:
        async with (
            serving() as server,
            ApiClient(ClientConfig(server.url, "t", token="first")) as api,
        ):
            await api.send(POST)
            async with api.stream(GET):
                pass
            server.takes = "second"
            async with api.stream(GET):
                pass
            assert api.n_sent == {("POST", 200): 1, ("GET", 200): 1, ("GET", 401): 1}

    run(steps())


def test_a_connection_that_is_refused_or_reset_is_an_answer_without_a_status() -> None:
    async def steps() -> None:
        async with ApiClient(ClientConfig("http://127.0.0.1:1", "t")) as api:
            answer = await api.send(POST)
            assert answer.status == 0
            assert answer.fault

    run(steps())


# Finding the cluster.


def test_the_cluster_is_found_as_kubectl_finds_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def written(name: str, server: str) -> str:
        tree = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
        }
        (tmp_path / name).write_text(json.dumps(tree))
        return str(tmp_path / name)

    one, two = written("one", "http://one"), written("two", "http://two")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{two}:{one}")
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert load_client_config(one).server == "http://one"
    assert load_client_config().server == "http://two"
    monkeypatch.setenv("KUBECONFIG", "")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(CredentialError, match="set --kubeconfig FILE"):
        load_client_config()
    with pytest.raises(CredentialError, match="unable to read kubeconfig"):
        load_client_config(str(tmp_path / "missing"))


def test_a_legacy_auth_provider_is_asked_through_the_official_client(tmp_path: Path) -> None:
    def part(tree: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(tree).encode()).decode().rstrip("=")

    token = f"{part({'alg': 'none'})}.{part({'exp': 4102444800})}.x"
    provider = {"name": "oidc", "config": {"id-token": token, "idp-issuer-url": "https://i"}}
    tree = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "users": [{"name": "u", "user": {"auth-provider": provider}}],
    }
    file = tmp_path / "k"
    file.write_text(json.dumps(tree))
    assert auth_provider_token(load_client_config(str(file))) == token
    provider["name"] = "nobody"
    file.write_text(json.dumps(tree))
    with pytest.raises(CredentialError, match="auth-provider 'nobody': returned no token"):
        auth_provider_token(load_client_config(str(file)))
