"""Files of recorded conversations, line by line: what is exact, what is listed, what differs.

A line is a scenario, a kubectl command, or JSON beside the same as protobuf: an object, an answer
or a watch.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from stowplan.apis.machinery.http_messages import HttpRequest
from tests.contract.apiserver import kinds_replay
from tests.contract.apiserver.not_modelled import NOT_MODELLED
from tests.contract.apiserver.parity import everywhere, explains
from tests.contract.apiserver.protobuf_forms import form_differences
from tests.contract.apiserver.recorded_server import RestartableCluster
from tests.contract.apiserver.replay import START, Replay, prepared_cluster
from tests.contract.apiserver.symbols import Finding

Tree = dict[str, Any]
_NAMESPACE = re.compile(r"/namespaces/([a-z0-9-]+)")


class LineResult(NamedTuple):
    """One line. differences: what is not as recorded; listed: how many more are on the list.

    is_of_client: it shows what a client sent, and cannot be repeated alone.
    """

    name: str
    differences: list[str]
    listed: int = 0
    is_of_client: bool = False

    @property
    def exact(self) -> bool:
        return not self.differences and not self.listed


def lines_of(path: Path) -> list[Tree]:
    """The lines of a file; gzip or plain."""
    raw = path.read_bytes()
    text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    return [json.loads(line) for line in text.decode().splitlines() if line.strip()]


def replayed_lines(lines: Iterable[Tree]) -> Iterator[LineResult]:
    """Each line repeated: scenarios on servers of their own, kubectl commands on one server."""
    cluster: RestartableCluster | None = None
    lines = list(lines)
    now = START
    for number, line in enumerate(lines, 1):
        name = f"{number} {line.get('scenario') or line.get('kind') or line.get('path') or ''}"
        if _is_of_client(line):
            # Requests of a client: what they met was made by others, whose writes are not shown.
            yield LineResult(name, [], is_of_client=True)
        elif "exchanges" not in line:
            yield LineResult(name, list(form_differences(line)))
        elif "argv" in line:
            if cluster is None:
                cluster = _shared_cluster(lines)
            now += 0.4
            replay = Replay({"server": "plain", **line}, cluster, now)
            replay.namespace = _namespace_of(lines)
            yield _replayed(name, replay)
        elif line["group"] in kinds_replay.GROUPS:
            own = kinds_replay.KindsCluster(line["server"], START)
            yield _replayed(name, kinds_replay.KindsReplay(line, own, START))
        else:
            yield _replayed(name, Replay(line, prepared_cluster(line), START))


def _is_of_client(line: Tree) -> bool:
    alone = any(key in line for key in ("server", "base64", "stream_base64"))
    return not alone and ("argv" not in line or line["group"] == "kubectl")


def _replayed(name: str, replay: Replay) -> LineResult:
    try:
        replay.run()
    # A line that cannot be repeated at all is one that differs, and the others go on.
    except Exception as error:  # noqa: BLE001
        return LineResult(name, [f"cannot be repeated: {error!r}"])
    group, scenario = replay.scenario["group"], replay.scenario["scenario"]
    left = [(n, f) for n, f in replay.findings if not everywhere(f, group)]
    known = [(n, f) for n, f in left if _is_listed(group, scenario, n, f)]
    return LineResult(name, [_text(n, f) for n, f in left if (n, f) not in known], len(known))


def _is_listed(group: str, scenario: str, n: int, finding: Finding) -> bool:
    return any(explains(entry, group, scenario, n, finding) for entry in NOT_MODELLED)


def _text(n: int, finding: Finding) -> str:
    return f"{n} {finding.where}: wanted {str(finding.wanted)[:200]}, got {str(finding.got)[:200]}"


def _namespaces(lines: list[Tree]) -> Counter[str]:
    """How often each namespace is in a path."""
    return Counter(
        match[1]
        for line in lines
        for exchange in line.get("exchanges", ())
        if (match := _NAMESPACE.search((exchange.get("request") or {}).get("path", "")))
    )


def _namespace_of(lines: list[Tree]) -> str:
    """The namespace that commands have without one of their own."""
    return max(_namespaces(lines).items(), key=lambda pair: pair[1], default=("default", 0))[0]


def _shared_cluster(lines: list[Tree]) -> RestartableCluster:
    """A server for commands that ran one after another, with the namespaces they ran in."""
    cluster = RestartableCluster("plain", START)
    found = set(_namespaces(lines))
    headers = {"authorization": "Bearer admin-token", "content-type": "application/json"}
    for name in sorted(found):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        query = (("fieldManager", "kubectl-create"),)
        raw = json.dumps(body).encode()
        cluster.handle(HttpRequest("POST", "/api/v1/namespaces", query, headers, raw), START)
    return cluster
