"""Logs: text or JSON, a line each, with a level for each part."""

from __future__ import annotations

import json
import logging
import sys
import time

ROOT = "stowplan"
PARTS = ("scheduler", "informers", "leader", "writes", "plugins", "http")
LEVELS = ("debug", "info", "warning", "error")


class LogError(ValueError):
    """A level or a part that there is not."""


class JsonFormatter(logging.Formatter):
    """A JSON object in a line: ts (seconds), level, part, msg."""

    def format(self, record: logging.LogRecord) -> str:
        tree = {
            "ts": round(record.created, 6),
            "level": record.levelname.lower(),
            "part": _part(record.name),
            "msg": record.getMessage(),
        }
        if record.exc_info:
            tree["trace"] = self.formatException(record.exc_info)
        return json.dumps(tree, ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """Time, level, part, message."""

    def format(self, record: logging.LogRecord) -> str:
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        head = f"{at}.{round(record.msecs) % 1000:03}Z {record.levelname:<7}"
        text = f"{head} {_part(record.name)}: {record.getMessage()}"
        return text + (f"\n{self.formatException(record.exc_info)}" if record.exc_info else "")


def _part(name: str) -> str:
    return name.removeprefix(f"{ROOT}.")


def levels_of(text: str) -> dict[str, int]:
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


def set_up(form: str = "text", levels: str = "info") -> None:
    """Log to standard error. form: text or json. Raises LogError."""
    found = levels_of(levels)
    root = logging.getLogger(ROOT)
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonFormatter() if form == "json" else TextFormatter())
    root.handlers[:] = [handler]
    root.propagate = False
    root.setLevel(found.get("", logging.INFO))
    for part in PARTS:
        logging.getLogger(f"{ROOT}.{part}").setLevel(found.get(part, logging.NOTSET))
