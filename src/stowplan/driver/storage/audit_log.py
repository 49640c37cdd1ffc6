"""The audit log: one event a line, appended to a file."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import msgspec

from stowplan.driver.logs import log_keys
from stowplan.objects.encoding.tree import Tree

log = logging.getLogger("stowplan.cluster")


class AuditLogError(Exception):
    """The file cannot be written; the text is for the user."""


class AuditLog:
    """Appends events to a file. A file that cannot be written any more is reported once, and the
    cluster goes on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._encode = msgspec.json.Encoder().encode
        self._has_failed = False
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(path, flags, 0o600)
        except OSError as problem:
            raise AuditLogError(f"unable to write {path}: {problem.strerror}") from None

    def write(self, event: Tree) -> None:
        """Append an event."""
        if self._has_failed:
            return
        try:
            os.write(self._file, self._encode(event) + b"\n")
        except OSError as problem:
            self._has_failed = True
            log_keys(
                log,
                logging.ERROR,
                "Audit log cannot be written; events are lost",
                path=str(self.path),
                err=problem.strerror or str(problem),
            )

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)
