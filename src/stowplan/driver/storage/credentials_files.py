"""Credential files of a cluster: client tokens, and the serving certificate.

Both are created at the first start and kept in the data directory, so that a copied kubeconfig
stays valid.
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
from stowplan.driver.storage.kubeconfig_files import write_secret

ADMIN = User("admin", "admin-uid", (MASTERS_GROUP,))
SCHEDULER = User("system:kube-scheduler", "scheduler-uid")
TOKENS = "tokens.csv"
_WANTED = "token,user,uid and, if any, the groups in quotes"

TokenUsers = tuple[tuple[str, User], ...]


class CredentialFilesError(Exception):
    """Tokens or certificate cannot be read or written."""


class ServingCertificate(NamedTuple):
    """Certificate for the server and its clients. certificate: PEM."""

    context: ssl.SSLContext
    certificate: str


def load_tokens(directory: Path | None, extra: Path | None = None) -> TokenUsers:
    """Tokens of the administrator and the scheduler, then those of the file `extra`.

    directory: where they are kept; None: new ones each time. Raises CredentialFilesError.
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
            raise CredentialFilesError(f"unable to write {path}: {problem.strerror}") from None
        return made
    known = read_tokens(path)
    for user in (ADMIN, SCHEDULER):
        if all(other.name != user.name for _, other in known):
            raise CredentialFilesError(
                f"{path}: no token of {user.name}; delete the file to create new tokens"
            )
    return known


def read_tokens(path: Path) -> TokenUsers:
    """Tokens of a file in kube-apiserver's form. Raises CredentialFilesError.

    The text of an error never contains a token, or anything else of the line.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = list(csv.reader(file))
    except (OSError, UnicodeDecodeError, csv.Error) as problem:
        why = getattr(problem, "strerror", None) or "not CSV text"
        raise CredentialFilesError(f"unable to read {path}: {why}") from None
    known = []
    for number, row in enumerate(rows, start=1):
        if not row or row[0].startswith("#"):
            continue
        token, name, uid, groups = (*row[:4], "", "", "", "")[:4]
        if len(row) < 3 or not token.strip() or not name.strip():
            got = _missing_from(row)
            raise CredentialFilesError(f"{path}: line {number}: {got}: expected {_WANTED}")
        listed = tuple(group.strip() for group in groups.split(",") if group.strip())
        known.append((token.strip(), User(name.strip(), uid.strip(), listed)))
    return tuple(known)


def _missing_from(row: list[str]) -> str:
    """What is wrong with a line of a token file that lacks a column, its token or its user."""
    if len(row) < 3:
        return f"too few columns ({len(row)})"
    return "empty user" if row[0].strip() else "empty token"


def serving_certificate(directory: Path | None, host: str, now: float) -> ServingCertificate:
    """A certificate for `host` and for this machine's names. Raises CredentialFilesError."""
    if directory is None:
        with tempfile.TemporaryDirectory() as temporary:
            return _serving_certificate(Path(temporary), host, now)
    return _serving_certificate(directory, host, now)


def _serving_certificate(directory: Path, host: str, now: float) -> ServingCertificate:
    path = directory / f"tls-{host.replace(':', '-')}.pem"
    try:
        if not path.exists():
            # Not at the top: only the first start of a cluster needs the library behind it.
            from stowplan.driver.certificate import self_signed_certificate

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
        raise CredentialFilesError(f"{path}: invalid key or certificate: {problem}") from None
    return ServingCertificate(context, text[text.index("-----BEGIN CERTIFICATE") :])


def _names(names: Sequence[str]) -> list[str]:
    """Names and addresses without the unspecified addresses, to which no client connects."""
    return [name for name in names if name not in ("0.0.0.0", "::", "")]
