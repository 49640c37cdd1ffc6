"""What a cluster's clients are known by: tokens, and the certificate that the server shows.

Both are made at the first start, and kept where the cluster's data is kept, so that a kubeconfig
that was copied elsewhere goes on working.
"""

from __future__ import annotations

import csv
import secrets
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from stowplan.apis.machinery.http_messages import User
from stowplan.apiserver.auth.rbac import MASTERS_GROUP
from stowplan.driver.certificate import self_signed_certificate
from stowplan.driver.storage.kubeconfig_files import write_secret

ADMIN = User("admin", "admin-uid", (MASTERS_GROUP,))
SCHEDULER = User("system:kube-scheduler", "scheduler-uid")
TOKENS = "tokens.csv"
_WANTED = "token,user,uid and, if any, the groups in quotes"

TokenUsers = tuple[tuple[str, User], ...]


class CredentialFilesError(Exception):
    """Tokens or certificate cannot be read or written; the text says which and why."""


class ServingCertificate(NamedTuple):
    """For the server and for its clients. certificate: PEM."""

    context: ssl.SSLContext
    certificate: str


def load_tokens(directory: Path | None, extra: Path | None = None) -> TokenUsers:
    """The administrator's and the scheduler's token, then those of the file `extra`.

    directory: where they are kept; None: they are made anew each time. Raises CredentialsError.
    """
    kept = _stored_tokens(directory) if directory else _new_tokens()
    return (*kept, *(read_tokens(extra) if extra else ()))


def _new_tokens() -> TokenUsers:
    return tuple((secrets.token_urlsafe(32), user) for user in (ADMIN, SCHEDULER))


def _stored_tokens(directory: Path) -> TokenUsers:
    path = directory / TOKENS
    if not path.exists():
        made = _new_tokens()
        lines = [
            f'{token},{user.name},{user.uid},"{",".join(user.groups)}"' for token, user in made
        ]
        try:
            write_secret(path, "\n".join(lines) + "\n")
        except OSError as problem:
            raise CredentialFilesError(f"{path}: cannot be written: {problem.strerror}") from None
        return made
    known = read_tokens(path)
    for user in (ADMIN, SCHEDULER):
        if all(other.name != user.name for _, other in known):
            raise CredentialFilesError(
                f"{path}: has no token of {user.name}; delete it for new ones"
            )
    return known


def read_tokens(path: Path) -> TokenUsers:
    """The tokens of a file of the form that kube-apiserver takes. Raises CredentialsError.

    The text of an error never contains a token, nor anything else of the line.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        why = getattr(problem, "strerror", None) or "it is no CSV text"
        raise CredentialFilesError(f"{path}: cannot be read: {why}") from None
    known = []
    for number, row in enumerate(rows, start=1):
        if not row or row[0].startswith("#"):
            continue
        token, name, uid, groups = (*row[:4], "", "", "", "")[:4]
        if len(row) < 3 or not token.strip() or not name.strip():
            text = f"{path}: line {number}: got {len(row)} columns, wanted {_WANTED}"
            raise CredentialFilesError(text)
        listed = tuple(group.strip() for group in groups.split(",") if group.strip())
        known.append((token.strip(), User(name.strip(), uid.strip(), listed)))
    return tuple(known)


def serving_certificate(directory: Path | None, host: str, now: float) -> ServingCertificate:
    """A certificate for `host` and for this machine as it calls itself. Raises CredentialsError."""
    if directory is None:
        with tempfile.TemporaryDirectory() as temporary:
            return _serving_certificate(Path(temporary), host, now)
    return _serving_certificate(directory, host, now)


def _serving_certificate(directory: Path, host: str, now: float) -> ServingCertificate:
    path = directory / f"tls-{host.replace(':', '-')}.pem"
    try:
        if not path.exists():
            names = dict.fromkeys((host, "127.0.0.1", "::1", "localhost"))
            made = self_signed_certificate(_names(tuple(names)), now)
            write_secret(path, made.key + made.certificate)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        context.load_cert_chain(path)
        text = path.read_text(encoding="ascii")
    except (OSError, ValueError) as problem:
        # ssl.SSLError is an OSError.
        raise CredentialFilesError(f"{path}: no usable key and certificate: {problem}") from None
    return ServingCertificate(context, text[text.index("-----BEGIN CERTIFICATE") :])


def _names(names: Sequence[str]) -> list[str]:
    """Without the addresses that mean every address: nobody connects to those."""
    return [name for name in names if name not in ("0.0.0.0", "::", "")]
