"""Logs: text or JSON, a line each, with a level for each part."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import Any

ROOT = "stowplan"
PARTS = ("scheduler", "decisions", "informers", "leader", "writes", "plugins", "http")
LEVELS = ("debug", "info", "warning", "error")
DECISIONS_FROM, DEBUG_FROM = 2, 4
"""Verbosities: kube-scheduler logs bindings from 2 on, and what clients do from 4 on."""


class LogError(ValueError):
    """A level or a part that there is not."""


class JsonFormatter(logging.Formatter):
    """A JSON object in a line: ts (seconds), level, part, msg, and the keys of the line."""

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
        return json.dumps(tree, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """Time, level, part, message, and keys as klog writes them: key="text", key=number."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        head = f"{at}.{round(record.msecs) % 1000:03}Z {record.levelname:<7}"
        text = f"{head} {_part(record.name)}: {record.getMessage()}"
        text += "".join(f" {key}={_value(value)}" for key, value in _keys(record).items())
        return text + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


def log_keys(logger: logging.Logger, level: int, message: str, **keys: Any) -> None:
    """Log a constant message with keys: text, whole numbers."""
    logger.log(level, message, extra={"keys": keys})


def _keys(record: logging.LogRecord) -> dict[str, Any]:
    keys: dict[str, Any] = getattr(record, "keys", {})
    return keys


def _value(value: Any) -> str:
    return str(value) if isinstance(value, int) else json.dumps(value, ensure_ascii=False)


def _part(name: str) -> str:
    return name.removeprefix(f"{ROOT}.")


def parse_levels(text: str) -> dict[str, int]:
    """Part ("" for all) -> level, of `info,informers=debug`; raises LogError."""
    found: dict[str, int] = {}
    for piece in filter(None, text.split(",")):
        part, _, level = piece.rpartition("=")
        if level not in LEVELS:
            raise LogError(f"log level: got {level!r}, wanted one of {', '.join(LEVELS)}")
        if part and part not in PARTS:
            raise LogError(f"log level: got the part {part!r}, wanted one of {', '.join(PARTS)}")
        found[part] = getattr(logging, level.upper())
    return found


def levels_by_verbosity(number: int) -> dict[str, int]:
    """Levels, as `parse_levels` has them, of a verbosity as klog counts it."""
    if number >= DEBUG_FROM:
        return {"": logging.DEBUG}
    quiet = {} if number >= DECISIONS_FROM else {"decisions": logging.WARNING}
    return {"": logging.INFO, **quiet}


def configure_logging(form: str = "text", levels: str = "", verbosity: int | None = None) -> None:
    """Log to standard error. form: text or json. levels: see `parse_levels`, on top of those of the
    verbosity. Raises LogError."""
    found = levels_by_verbosity(DECISIONS_FROM if verbosity is None else verbosity)
    found |= parse_levels(levels)
    root = logging.getLogger(ROOT)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(found.get("", logging.INFO))
    for part in PARTS:
        logging.getLogger(f"{ROOT}.{part}").setLevel(found.get(part, logging.NOTSET))
