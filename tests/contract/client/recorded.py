"""Recorded conversations with a real API server, as a client sees them."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

Tree = dict[str, Any]
OWN = Path(__file__).parent / "data"
SERVERS = Path(__file__).parent.parent / "apiserver" / "data"
GROUPS = ("core", "watch", "expiry", "crd", "scheduling", "objects", "auth")

_RV = re.compile(r"<rv(\d+)>")
_TIME = re.compile(r"<time(?:[+-]\d+s)?>")
_MICRO = re.compile(r"<time-(?:micro|nano)>")


@cache
def scenarios(group: str) -> tuple[Tree, ...]:
    folder = OWN if (OWN / f"{group}.jsonl.gz").exists() else SERVERS
    with gzip.open(folder / f"{group}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return tuple(json.loads(line) for line in lines)


def concrete(text: str) -> str:
    """A text with values in place of symbols: versions that keep their order, some time."""
    text = _RV.sub(lambda found: str(1000 + int(found[1])), text)
    text = _MICRO.sub("2026-11-21T10:00:00.123456Z", text)
    return _TIME.sub("2026-11-21T10:00:00Z", text)


def as_bytes(body: Any) -> bytes:
    """A recorded body as it was on the wire, or nearly so."""
    if isinstance(body, dict) and "$text" in body:
        return concrete(body["$text"]).encode()
    return b"" if body is None else concrete(json.dumps(body)).encode()


def exchanges() -> Iterator[tuple[str, Tree]]:
    """(where, exchange) of all groups, without what was done beside HTTP."""
    for group in GROUPS:
        for scenario in scenarios(group):
            for exchange in scenario["exchanges"]:
                if "request" in exchange:
                    yield f"{group} {scenario['scenario']} {exchange['n']}", exchange


def watches() -> Iterator[tuple[str, Tree]]:
    """(where, exchange) of every watch that was recorded."""
    yield from ((where, e) for where, e in exchanges() if "events" in e)
    for scenario in scenarios("scheduler"):
        for exchange in scenario["exchanges"]:
            if "events" in exchange:
                yield f"scheduler {scenario['scenario']} {exchange['n']}", exchange


def lines(exchange: Tree) -> list[bytes]:
    """The lines of a watch."""
    return [
        concrete(json.dumps({"type": event["type"], "object": event["object"]})).encode() + b"\n"
        for event in exchange["events"]
    ]
