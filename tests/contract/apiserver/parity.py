"""What a test says of a repeated scenario, and the page that lists the known differences."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from tests.contract.apiserver.not_modelled import (
    EVERYWHERE,
    NOT_MODELLED,
    NOT_YET,
    STAND_INS,
    NotModelled,
)
from tests.contract.apiserver.replay import Replay, replayed, scenarios
from tests.contract.apiserver.symbols import Finding

PAGE = Path(__file__).parents[3] / "docs" / "parity-api.md"
TEXT_MAX = 300


def names(group: str) -> list[str]:
    """The scenarios of a group that are repeated."""
    found = [scenario["scenario"] for scenario in scenarios(group)]
    return [name for name in found if (group, name) not in NOT_YET]


@cache
def repeated(group: str, scenario: str) -> Replay:
    """One scenario, repeated once."""
    (replay,) = replayed(group, lambda one: bool(one["scenario"] == scenario))
    return replay


def explains(entry: NotModelled, group: str, scenario: str, n: int, finding: Finding) -> bool:
    """True if a known difference is this finding."""
    here = (entry.group, entry.scenario, entry.exchange) == (group, scenario, n)
    return here and finding.where.startswith(entry.place)


def everywhere(finding: Finding, group: str) -> bool:
    """True for a difference that is known wherever it shows."""
    return any(
        re.fullmatch(known.place, finding.where)
        and not (known.added and finding.wanted != "(absent)")
        and group not in known.strict
        for known in EVERYWHERE
    )


def problems(group: str, scenario: str, entries: Iterable[NotModelled] = NOT_MODELLED) -> list[str]:
    """What differs from the recording without standing in the list, and entries without use."""
    replay = repeated(group, scenario)
    mine = [e for e in entries if (e.group, e.scenario) == (group, scenario)]
    lines = [
        _line(n, finding)
        for n, finding in replay.findings
        if not everywhere(finding, group)
        and not any(explains(entry, group, scenario, n, finding) for entry in mine)
    ]
    stale = (
        entry
        for entry in mine
        if not any(explains(entry, group, scenario, n, f) for n, f in replay.findings)
    )
    lines += [f"{entry.exchange} {entry.place}: listed, but does not differ" for entry in stale]
    return lines


def _line(n: int, finding: Finding) -> str:
    wanted, got = str(finding.wanted)[:TEXT_MAX], str(finding.got)[:TEXT_MAX]
    return f"{n} {finding.where}: wanted {wanted}, got {got}"


def page() -> str:
    """docs/parity-api.md."""
    return "\n".join(_page()) + "\n"


def _page() -> Iterator[str]:
    yield "# Parity of the embedded API server"
    yield ""
    yield "Written by `tests/contract/apiserver/test_parity.py` from the list that the tests use"
    yield "(`tests/contract/apiserver/not_modelled.py`): `make golden` writes it anew. Recorded"
    yield "conversations with a kube-apiserver 1.36.2 are repeated with the embedded server, and"
    yield "every status and every field of every answer is as recorded, but for what stands here."
    yield ""
    yield "## Not yet"
    yield ""
    yield "| recorded scenario | why it is not repeated |"
    yield "|---|---|"
    for (group, scenario), reason in sorted(NOT_YET.items()):
        yield f"| {group}/{scenario} | {reason} |"
    yield ""
    yield "## Sent otherwise than recorded"
    yield ""
    yield "| request | sent as | why |"
    yield "|---|---|---|"
    for one in STAND_INS:
        yield f"| {one.group}/{one.scenario} {one.exchange} | {one.media} | {one.reason} |"
    yield ""
    yield "## Not modelled anywhere"
    yield ""
    yield "| what differs | where it shows (pattern of the field) |"
    yield "|---|---|"
    for known in EVERYWHERE:
        yield f"| {known.reason} | `{known.place}` |"
    yield ""
    yield "## Not modelled here and there"
    yield ""
    grouped: dict[str, list[NotModelled]] = defaultdict(list)
    for entry in NOT_MODELLED:
        grouped[entry.reason].append(entry)
    yield "| what differs | where it shows (scenario, exchange, field) |"
    yield "|---|---|"
    for reason, entries in grouped.items():
        places = "; ".join(_place(entry) for entry in entries)
        yield f"| {reason} | {places} |"


def _place(entry: NotModelled) -> str:
    return f"{entry.group}/{entry.scenario} {entry.exchange} `{entry.place}`"
