"""Kubeconfig files of a local cluster."""

from __future__ import annotations

import base64
import contextlib
import fcntl
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any


def kubeconfig_tree(server: str, certificate: str, user: str, token: str) -> dict[str, Any]:
    """Content for one user. certificate: PEM; "" for a server without TLS."""
    cluster: dict[str, Any] = {"server": server}
    if certificate:
        packed = base64.b64encode(certificate.encode()).decode()
        cluster["certificate-authority-data"] = packed
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "stowplan", "cluster": cluster}],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "stowplan", "context": {"cluster": "stowplan", "user": user}}],
        "current-context": "stowplan",
    }


def write_secret(path: Path, text: str) -> None:
    """Write a file that only its owner can read, atomically. Raises OSError."""
    os.close(write_locked_secret(path, text))


def write_locked_secret(path: Path, text: str) -> int:
    """As `write_secret`; returns the open file, whose lock shows that its writer runs, until it is
    closed (`is_writer_alive`)."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    # A temporary file of a killed process with the same pid.
    draft.unlink(missing_ok=True)
    number = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        with os.fdopen(number, "w", encoding="utf-8", closefd=False) as file:
            file.write(text)
        draft.replace(path)
    except BaseException:
        os.close(number)
        raise
    return number


@contextlib.contextmanager
def locked_directory(directory: Path) -> Iterator[None]:
    """Lock a directory, which is created, against other processes. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    number = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(number, fcntl.LOCK_EX)
        yield
    finally:
        os.close(number)


def is_writer_alive(path: Path) -> bool:
    """True if the process that wrote a file by `write_locked_secret` still runs. Raises OSError."""
    number = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(number, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(number)
    return False


def is_same_file(path: Path, number: int) -> bool:
    """True if a path refers to the open file `number`."""
    try:
        found = path.stat()
    except OSError:
        return False
    own = os.fstat(number)
    return (found.st_dev, found.st_ino) == (own.st_dev, own.st_ino)


def as_text(content: dict[str, Any]) -> str:
    """As JSON, which is also YAML."""
    return json.dumps(content, indent=2) + "\n"


def is_kubeconfig_of_stowplan(text: str) -> bool:
    """True for the text of a kubeconfig that Stowplan wrote, for whatever cluster."""
    try:
        content = json.loads(text)
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("current-context") == "stowplan"
