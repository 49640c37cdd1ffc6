"""Logging to standard error as text or JSON, one line per record, with a level for each
component."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable
from typing import Any

from stowplan.apis.machinery.timestamps import format_time

ROOT = "stowplan"
PARTS = ("scheduler", "decisions", "informers", "leader", "writes", "plugins", "http")
LEVELS = ("debug", "info", "warning", "error")
DECISIONS_FROM, DEBUG_FROM = 2, 4
"""Verbosities: kube-scheduler logs bindings from 2 on, and client requests from 4 on."""

_encode = json.JSONEncoder(ensure_ascii=False).encode
"""One encoder: `json.dumps` makes a new one for each text."""


class LogError(ValueError):
    """An unknown log level or component."""


class JsonFormatter(logging.Formatter):
    """One JSON object per line: ts (seconds), level, part, msg, and the keys."""

    def format(self, record: logging.LogRecord) -> str:
        tree = {
            "ts": round(record.created, 6),
            "level": record.levelname.lower(),
            "part": _part(record.name),
            "msg": record.getMessage(),
            **_keys(record),
        }
        if record.exc_info:
            tree["trace"] = self.formatException(record.exc_info)
        return _encode(tree)


class TextFormatter(logging.Formatter):
    """Time, level, component, message, and keys as klog writes them: key="text", key=number."""

    def format(self, record: logging.LogRecord) -> str:
        at = format_time(record.created).removesuffix("Z")
        head = f"{at}.{round(record.msecs) % 1000:03}Z {record.levelname:<7}"
        text = f"{head} {_part(record.name)}: {record.getMessage()}"
        text += "".join(f" {key}={_value(value)}" for key, value in _keys(record).items())
        return text + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


def log_keys(logger: logging.Logger, level: int, message: str, **keys: Any) -> None:
    """Log a constant message with keys: texts and integers. Records do not name the caller, which
    takes long to find and is in no line."""
    if logger.isEnabledFor(level):
        extra = {"keys": keys}
        record = logger.makeRecord(logger.name, level, "", 0, message, (), None, extra=extra)
        logger.handle(record)


def _keys(record: logging.LogRecord) -> dict[str, Any]:
    keys: dict[str, Any] = getattr(record, "keys", {})
    return keys


def _value(value: Any) -> str:
    return str(value) if isinstance(value, int) else _encode(value)


def _part(name: str) -> str:
    return name.removeprefix(f"{ROOT}.")


def parse_levels(text: str) -> dict[str, int]:
    """Component ("" for all) -> level, of `info,informers=debug`; raises LogError."""
    found: dict[str, int] = {}
    for piece in filter(None, text.split(",")):
        part, _, level = piece.rpartition("=")
        if level not in LEVELS:
            raise _unsupported("level", level, LEVELS)
        if part and part not in PARTS:
            raise _unsupported("part", part, PARTS)
        found[part] = getattr(logging, level.upper())
    return found


def _unsupported(what: str, value: str, supported: Iterable[str]) -> LogError:
    names = ", ".join(supported)
    return LogError(f"log {what}: Unsupported value: {value!r}: supported values: {names}")


def levels_by_verbosity(number: int) -> dict[str, int]:
    """Levels, as `parse_levels` returns them, of a klog verbosity."""
    if number >= DEBUG_FROM:
        return {"": logging.DEBUG}
    quiet = {} if number >= DECISIONS_FROM else {"decisions": logging.WARNING}
    return {"": logging.INFO, **quiet}


def configure_logging(form: str = "text", levels: str = "", verbosity: int | None = None) -> None:
    """Log to standard error. form: text or json. levels: see `parse_levels`; they override the
    verbosity. Raises LogError."""
    found = levels_by_verbosity(DECISIONS_FROM if verbosity is None else verbosity)
    found |= parse_levels(levels)
    root = logging.getLogger(ROOT)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root.handlers[:] = [handler]
    root.propagate = False
    # Nor are threads and processes in any line.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    root.setLevel(found.get("", logging.INFO))
    for part in PARTS:
        logging.getLogger(f"{ROOT}.{part}").setLevel(found.get(part, logging.NOTSET))
