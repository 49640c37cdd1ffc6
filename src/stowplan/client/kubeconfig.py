"""Kubeconfig: parsed and merged into the settings of one connection, without reading files or
running plugins.

Several files are merged as kubectl does: the first definition of a name wins.

Differs: what kubectl ignores silently (a context that names no cluster, data that is not base64, an
unknown auth provider) is an error here.

Source: client-go v1.36, tools/clientcmd and its api/v1.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec

from stowplan.client.exec_credentials import ExecSpec
from stowplan.framework.problems import ConfigError, Problem, did_you_mean
from stowplan.objects.encoding.json_codec import DecodeError, convert
from stowplan.objects.encoding.yaml_documents import DocumentError, parse_documents

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
"""Directory of a pod's service account token and CA certificate."""


class DataOrFile(msgspec.Struct, frozen=True):
    """A certificate or a key, inline or in a file. Both empty: none."""

    data: bytes = b""
    file: str = ""

    def __bool__(self) -> bool:
        return bool(self.data or self.file)


class ClientConfig(msgspec.Struct, frozen=True):
    """Settings of a connection to an API server.

    server: its URL. proxy: proxy URL, "" for that of the environment. server_name: expected in the
    certificate instead of the host. is_insecure: certificates are not verified. token_file: takes
    precedence over token and is read again periodically. headers: impersonation headers. source:
    where the settings come from. namespace: of the context. provider: legacy auth provider; files:
    kubeconfig files that configure it.
    """

    server: str
    source: str
    context: str = ""
    namespace: str = "default"
    proxy: str = ""
    server_name: str = ""
    is_insecure: bool = False
    ca: DataOrFile = DataOrFile()
    certificate: DataOrFile = DataOrFile()
    key: DataOrFile = DataOrFile()
    token: str = ""
    token_file: str = ""
    username: str = ""
    password: str = ""
    run: ExecSpec | None = None
    provider: str = ""
    files: tuple[str, ...] = ()
    headers: tuple[tuple[str, str], ...] = ()


# The file format.


class _KubeconfigPart(msgspec.Struct, frozen=True, rename="kebab"):
    """Base of the parts of a kubeconfig file; unknown fields pass, as with kubectl."""


class _KubeconfigCluster(_KubeconfigPart, frozen=True):
    server: str = ""
    tls_server_name: str = ""
    insecure_skip_tls_verify: bool = False
    certificate_authority: str = ""
    certificate_authority_data: str = ""
    proxy_url: str = ""


class _ExecEnvVar(msgspec.Struct, frozen=True):
    name: str = ""
    value: str = ""


class _ExecConfig(msgspec.Struct, frozen=True, rename="camel"):
    command: str = ""
    args: tuple[str, ...] = ()
    env: tuple[_ExecEnvVar, ...] = ()
    api_version: str = ""
    install_hint: str = ""
    provide_cluster_info: bool = False
    interactive_mode: str = ""


class _AuthProviderConfig(msgspec.Struct, frozen=True):
    name: str = ""
    config: dict[str, str] = {}


class _KubeconfigUser(_KubeconfigPart, frozen=True):
    client_certificate: str = ""
    client_certificate_data: str = ""
    client_key: str = ""
    client_key_data: str = ""
    token: str = ""
    token_file: str = msgspec.field(default="", name="tokenFile")
    username: str = ""
    password: str = ""
    exec: _ExecConfig | None = None
    auth_provider: _AuthProviderConfig | None = None
    as_user: str = msgspec.field(default="", name="as")
    as_uid: str = ""
    as_groups: tuple[str, ...] = ()
    as_user_extra: dict[str, tuple[str, ...]] = {}


class _KubeconfigContext(msgspec.Struct, frozen=True):
    cluster: str = ""
    user: str = ""
    namespace: str = ""


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str = ""
    cluster: _KubeconfigCluster = _KubeconfigCluster()


class _NamedUser(msgspec.Struct, frozen=True):
    name: str = ""
    user: _KubeconfigUser = _KubeconfigUser()


class _NamedContext(msgspec.Struct, frozen=True):
    name: str = ""
    context: _KubeconfigContext = _KubeconfigContext()


class _Kubeconfig(_KubeconfigPart, frozen=True):
    current_context: str = ""
    clusters: tuple[_NamedCluster, ...] = ()
    users: tuple[_NamedUser, ...] = ()
    contexts: tuple[_NamedContext, ...] = ()


class KubeconfigFile(msgspec.Struct, frozen=True):
    """Text of a kubeconfig file. directory: base of its relative paths."""

    text: str
    source: str
    directory: str


class _NamedEntry(msgspec.Struct, frozen=True):
    """A named entry, and the file that defines it."""

    value: Any
    file: KubeconfigFile


def client_config(files: Sequence[KubeconfigFile], context: str = "") -> ClientConfig:
    """Settings for a context, by default the current one; raises ConfigError."""
    contexts: dict[str, _NamedEntry] = {}
    clusters: dict[str, _NamedEntry] = {}
    users: dict[str, _NamedEntry] = {}
    current = ""
    for file in files:
        written = _read(file)
        current = current or written.current_context
        for one in written.contexts:
            contexts.setdefault(one.name, _NamedEntry(one.context, file))
        for two in written.clusters:
            clusters.setdefault(two.name, _NamedEntry(two.cluster, file))
        for three in written.users:
            users.setdefault(three.name, _NamedEntry(three.user, file))
    source = ", ".join(file.source for file in files) or "kubeconfig"
    wanted = context or current
    if not wanted:
        raise _error(source, "current-context", "nothing", "the name of a context")
    chosen: _KubeconfigContext = _named(contexts, wanted, source, "context", "contexts").value
    where = f"contexts[{wanted}]"
    cluster = _named(clusters, chosen.cluster, source, f"{where}.cluster", "clusters")
    user = _NamedEntry(_KubeconfigUser(), cluster.file)
    if chosen.user:
        user = _named(users, chosen.user, source, f"{where}.user", "users")
    found = _client_config(wanted, chosen, cluster, user)
    return msgspec.structs.replace(found, files=tuple(file.source for file in files))


def _read(file: KubeconfigFile) -> _Kubeconfig:
    try:
        trees = [document.tree for document in parse_documents(file.text)]
        if not trees:
            return _Kubeconfig()
        if not isinstance(trees[0], dict):
            raise _error(file.source, "$", type(trees[0]).__name__, "a kubeconfig")
        return convert(trees[0], _Kubeconfig)
    except DocumentError as problem:
        raise _error(file.source, problem.place, problem.got, problem.wanted) from None
    except DecodeError as problem:
        raise _error(file.source, problem.path, problem.what, "a kubeconfig") from None


def _named(
    found: dict[str, _NamedEntry], name: str, source: str, place: str, kind: str
) -> _NamedEntry:
    if name not in found:
        names = ", ".join(sorted(found)) or "none"
        raise _error(source, place, repr(name), f"one of its {kind}: {names}", name, found)
    return found[name]


def _client_config(
    name: str, chosen: _KubeconfigContext, cluster: _NamedEntry, user: _NamedEntry
) -> ClientConfig:
    server, user_config = cluster.value, user.value
    where = f"clusters[{chosen.cluster}]"
    _check_address(server.server, cluster.file.source, f"{where}.server", ("http", "https"))
    if server.proxy_url:
        schemes = ("http", "https")
        _check_address(server.proxy_url, cluster.file.source, f"{where}.proxy-url", schemes)
    users = f"users[{chosen.user}]"
    provider = user_config.auth_provider
    return ClientConfig(
        server=server.server.rstrip("/"),
        source=cluster.file.source,
        context=name,
        namespace=chosen.namespace or "default",
        proxy=server.proxy_url,
        server_name=server.tls_server_name,
        is_insecure=server.insecure_skip_tls_verify,
        ca=_data_or_file(cluster, f"{where}.certificate-authority", "certificate_authority"),
        certificate=_data_or_file(user, f"{users}.client-certificate", "client_certificate"),
        key=_data_or_file(user, f"{users}.client-key", "client_key"),
        token=user_config.token,
        token_file=_path_relative_to(user.file, user_config.token_file),
        username=user_config.username,
        password=user_config.password,
        run=None
        if user_config.exec is None
        else _exec(user_config.exec, user.file, f"{users}.exec"),
        provider="" if provider is None else provider.name,
        headers=_impersonation(user_config, user.file.source, users),
    )


def _check_address(text: str, source: str, place: str, schemes: tuple[str, ...]) -> None:
    wanted = f"an address that begins with {' or '.join(f'{scheme}://' for scheme in schemes)}"
    try:
        parts = urlsplit(text)
        is_good = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good:
        raise _error(source, place, repr(text), wanted)


def _data_or_file(found: _NamedEntry, place: str, field: str) -> DataOrFile:
    """Inline data or a file; data takes precedence."""
    data: str = getattr(found.value, f"{field}_data")
    if not data:
        return DataOrFile(file=_path_relative_to(found.file, getattr(found.value, field)))
    try:
        # The data may be wrapped over several lines.
        return DataOrFile(data=base64.b64decode("".join(data.split()), validate=True))
    except (binascii.Error, ValueError):
        raise _error(found.file.source, f"{place}-data", "something else", "base64") from None


def _path_relative_to(file: KubeconfigFile, path: str) -> str:
    if not path or path.startswith("/") or not file.directory:
        return path
    return f"{file.directory.rstrip('/')}/{path}"


def _exec(written: _ExecConfig, file: KubeconfigFile, place: str) -> ExecSpec:
    if written.api_version not in ExecSpec.VERSIONS:
        wanted = f"one of {', '.join(ExecSpec.VERSIONS)}"
        raise _error(file.source, f"{place}.apiVersion", repr(written.api_version), wanted)
    if not written.command:
        raise _error(file.source, f"{place}.command", "nothing", "the name of a program")
    if written.interactive_mode not in ("", "Never", "IfAvailable", "Always"):
        wanted = "Never, IfAvailable or Always"
        raise _error(file.source, f"{place}.interactiveMode", written.interactive_mode, wanted)
    # A bare name is looked up in the PATH; a relative path is relative to the file.
    command = written.command
    if "/" in command:
        command = _path_relative_to(file, command)
    return ExecSpec(
        command=command,
        args=written.args,
        env=tuple((variable.name, variable.value) for variable in written.env),
        api_version=written.api_version,
        hint=written.install_hint,
        provides_cluster_info=written.provide_cluster_info,
        is_interactive=written.interactive_mode == "Always",
    )


def _impersonation(
    user_config: _KubeconfigUser, source: str, place: str
) -> tuple[tuple[str, str], ...]:
    if not user_config.as_user:
        if user_config.as_uid or user_config.as_groups or user_config.as_user_extra:
            raise _error(source, f"{place}.as", "nothing", "a user for the other as-... fields")
        return ()
    headers = [("Impersonate-User", user_config.as_user)]
    if user_config.as_uid:
        headers.append(("Impersonate-Uid", user_config.as_uid))
    headers += [("Impersonate-Group", group) for group in user_config.as_groups]
    for key, values in user_config.as_user_extra.items():
        # Keys contain slashes, which header names may not.
        name = quote(key, safe="!#$&'*+-.^_`|~")
        headers += [(f"Impersonate-Extra-{name}", value) for value in values]
    return tuple(headers)


def in_cluster_config(host: str, port: str, namespace: str = "") -> ClientConfig:
    """Settings for the API server of the cluster that a pod runs in.

    host, port: KUBERNETES_SERVICE_HOST and _PORT. namespace: the pod's own.
    """
    at = f"[{host}]" if ":" in host else host
    return ClientConfig(
        server=f"https://{at}:{port}",
        source="in-cluster configuration",
        namespace=namespace or "default",
        ca=DataOrFile(file=f"{SERVICE_ACCOUNT}/ca.crt"),
        token_file=f"{SERVICE_ACCOUNT}/token",
    )


def _error(
    source: str, place: str, got: str, wanted: str, name: str = "", among: Any = ()
) -> ConfigError:
    hint = did_you_mean(name, among) if name else ""
    return ConfigError(source, [Problem(place, got, f"{wanted} ({hint})" if hint else wanted)])
