"""The symbols of a transcript, and the comparison of what was recorded with what we answer."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

from stowplan.apis.machinery.timestamps import parse_time

Tree = dict[str, Any]
SYMBOL = re.compile(r"<(rv|uid|gen|hex|continue)(\d+)>|<(time(?:-micro|-nano)?(?:\+\d+s)?|age)>")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
UID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")
AGE = re.compile(r"(\d+[smhdy])+")
SHAPES = {
    "rv": r"\d+",
    "uid": UID.pattern,
    "gen": "[bcdfghjklmnpqrstvwxz2456789]{5}",
    "hex": "[0-9a-f]+",
    "continue": "[A-Za-z0-9_-]+",
}
LISTED = ("List", "Table")


class Finding(NamedTuple):
    """One place where our answer is not the recorded one."""

    where: str
    wanted: Any
    got: Any


class Symbols:
    """What symbols stand for in one scenario.

    Versions of lists and bookmarks may belong to no object, as the original writes to its store by
    itself; only their order counts. tokens: what continue tokens say when decoded.
    """

    def __init__(self, tokens: Tree) -> None:
        self.values: dict[str, str] = {}
        self.loose: dict[str, str] = {}
        self.tokens = tokens
        self.now = 0.0
        self.service_account_token = ""

    def filled(self, text: str, quote: bool = False) -> str:
        """A text of a request with values in place of symbols. Raises KeyError."""
        from urllib.parse import quote as percent

        def value(found: re.Match[str]) -> str:
            symbol = found[0]
            if found[3]:
                return _moment(found[3], self.now)
            got = self._known(symbol) or self._older(symbol)
            return percent(got, safe="") if quote else got

        return SYMBOL.sub(value, text)

    def _older(self, symbol: str) -> str:
        """A version that no answer has shown: the newest before the next one known."""
        if not symbol.startswith("<rv"):
            raise KeyError(symbol)
        place = int(symbol[3:-1])
        known = {**self.loose, **self.values}
        later = [int(v) for s, v in known.items() if s[:3] == "<rv" and int(s[3:-1]) > place]
        if not later:
            raise KeyError(symbol)
        return str(min(later) - 1)

    def tree(self, value: Any) -> Any:
        """A tree of a request with values in place of symbols."""
        if isinstance(value, str):
            return self.filled(value)
        if isinstance(value, dict):
            return {self.filled(key): self.tree(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.tree(each) for each in value]
        return value

    def text(self, where: str, wanted: str, got: Any, loose: bool = False) -> Iterator[Finding]:
        """Compare a text that may hold symbols; those met first are bound."""
        if not isinstance(got, str):
            yield Finding(where, wanted, got)
            return
        if wanted == got:
            return
        if "<" not in wanted:
            if wanted != got:
                yield Finding(where, wanted, got)
            return
        if "managedFields" in wanted and "<rv" not in wanted:
            # Versions within such a text are those of the recorded server: no rule caught them.
            wanted = re.sub(r'(resourceVersion\\*"?: ?\\*")\d+', r"\1<rv0>", wanted)
            wanted, got = _without_managed_fields(wanted), _without_managed_fields(got)
        pattern, symbols = self._pattern(wanted)
        found = re.fullmatch(pattern, got, re.DOTALL)
        if found is None:
            yield Finding(where, wanted, got)
            return
        for symbol, value in zip(symbols, found.groups(), strict=True):
            whole = symbol == wanted
            if not self._fits(symbol, value, loose or (not whole and symbol.startswith("<rv"))):
                yield Finding(where, f"{wanted} ({symbol} {self._known(symbol)})", got)

    def _pattern(self, wanted: str) -> tuple[str, list[str]]:
        parts, symbols, at = [], [], 0
        for found in SYMBOL.finditer(wanted):
            parts.append(re.escape(wanted[at : found.start()]))
            at = found.end()
            symbols.append(found[0])
            if found[3]:
                shape = AGE.pattern if found[3] == "age" else TIME.pattern
                parts.append(f"({shape.replace('(', '(?:')})")
            else:
                parts.append(f"({SHAPES[found[1]]})")
        parts.append(re.escape(wanted[at:]))
        return "".join(parts), symbols

    def _known(self, symbol: str) -> str | None:
        return self.values.get(symbol) or self.loose.get(symbol)

    def _fits(self, symbol: str, value: str, loose: bool) -> bool:
        if symbol.startswith("<time"):
            return self._near(symbol, value)
        if symbol == "<age>":
            return True
        if symbol.startswith("<rv"):
            return self._version(symbol, value, loose)
        known = self.values.get(symbol)
        if known is not None:
            return known == value
        if symbol.startswith("<uid") and value in self.values.values():
            return False
        self.values[symbol] = value
        if symbol.startswith("<continue"):
            return self._token(symbol, value)
        return True

    def _near(self, symbol: str, value: str) -> bool:
        found = re.fullmatch(r"<time(-micro|-nano)?(?:\+(\d+)s)?>", symbol)
        assert found is not None
        digits = {None: 0, "-micro": 7, "-nano": 10}[found[1]]
        if len(value) != 20 + digits:
            return False
        after = int(found[2] or 0)
        return abs(parse_time(value) - self.now - after) <= 80

    def _version(self, symbol: str, value: str, loose: bool) -> bool:
        if symbol == "<rv0>":
            return True
        number = int(value)
        if not loose and symbol in self.values:
            return self.values[symbol] == value
        place = int(symbol[3:-1])
        for other, its in self.values.items():
            if not other.startswith("<rv") or other == symbol:
                continue
            before = int(other[3:-1]) < place
            if loose:
                if (int(its) > number) if before else (int(its) < number):
                    return False
            elif (int(its) >= number) if before else (int(its) <= number):
                return False
        if loose:
            self.loose[symbol] = value
        else:
            self.values[symbol] = value
        return True

    def _token(self, symbol: str, value: str) -> bool:
        """True when a continue token says what the recorded one says."""
        wanted = self.tokens[symbol]
        got = json.loads(base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)))
        version = wanted["rv"]
        if isinstance(version, str):
            if not self._version(version, str(got["rv"]), loose=True):
                return False
        elif version != got["rv"]:
            return False
        return bool(got["v"] == wanted["v"] and got["start"] == wanted["start"])

    def compare(self, where: str, wanted: Any, got: Any, loose: bool = False) -> Iterator[Finding]:
        """Compare values of any kind. loose: it is the version of a list."""
        if isinstance(wanted, str):
            yield from self.text(where, wanted, got, loose)
        elif isinstance(wanted, dict) and isinstance(got, dict):
            yield from self._objects(where, wanted, got)
        elif isinstance(wanted, list) and isinstance(got, list):
            if len(wanted) != len(got):
                yield Finding(f"{where}[]", f"{len(wanted)} items", f"{len(got)} items")
            for at, (one, other) in enumerate(zip(wanted, got, strict=False)):
                yield from self.compare(f"{where}[{at}]", one, other)
        elif type(wanted) is not type(got) or wanted != got:
            yield Finding(where, wanted, got)

    def _objects(self, where: str, wanted: Tree, got: Tree) -> Iterator[Finding]:
        wanted, got = _without_owner_uids(wanted), _without_owner_uids(got)
        listed = str(wanted.get("kind", "")).endswith(LISTED)
        # Objects first: the version of a list is bound loosely, theirs exactly.
        keys = sorted(wanted, key=lambda key: key == "metadata" and listed)
        for key in keys:
            place = f"{where}.{key}" if where else key
            if key not in got:
                yield Finding(place, wanted[key], "(absent)")
            elif key == "metadata" and listed and isinstance(got[key], dict):
                yield from self._list_meta(place, wanted[key], got[key])
            else:
                yield from self.compare(place, wanted[key], got[key])
        for key in got:
            if key not in wanted:
                yield Finding(f"{where}.{key}" if where else key, "(absent)", got[key])

    def _list_meta(self, where: str, wanted: Tree, got: Tree) -> Iterator[Finding]:
        keys = set(wanted) | set(got)
        for key in sorted(keys):
            place = f"{where}.{key}"
            if key not in wanted or key not in got:
                one = wanted.get(key, "(absent)")
                yield Finding(place, one, got.get(key, "(absent)"))
            else:
                loose = key == "resourceVersion"
                yield from self.compare(place, wanted[key], got[key], loose)


def _without_owner_uids(tree: Tree) -> Tree:
    """Keys of managedFields that name an owner by its uid, which is a process's own."""
    if not any(key.startswith('k:{"uid":') for key in tree):
        return tree
    return {
        re.sub(r'^k:\{"uid":"[^"]*"\}$', 'k:{"uid"}', key): value for key, value in tree.items()
    }


def _without_managed_fields(text: str) -> str:
    """A text without the managedFields that FORMAT.md removes from objects only."""
    if "managedFields:\n" in text:
        text = re.sub(r"  managedFields:\n(  - .*\n|    .*\n)+", "", text)
    while (found := re.search(r',\\*"managedFields\\*":\[', text)) is not None:
        depth, end = 1, found.end()
        while depth:
            depth += {"[": 1, "]": -1}.get(text[end], 0)
            end += 1
        text = text[: found.start()] + text[end:]
    return text


def _moment(symbol: str, now: float) -> str:
    from stowplan.apis.machinery.timestamps import format_micro_time, format_time

    after = re.search(r"\+(\d+)s", symbol)
    at = now + (int(after[1]) if after else 0)
    if symbol.startswith("time-micro"):
        return format_micro_time(at)
    if symbol.startswith("time-nano"):
        return format_micro_time(at)[:-1] + "000Z"
    return format_time(at)
