"""The normal form of what kubectl prints: what differs from run to run, as a word for it."""

import re
from collections.abc import Iterator

_RULES: tuple[tuple[str, str], ...] = (
    # Lines of the client's own log.
    (r"(?m)^[IWE]\d{4} [^\n]*\n?", ""),
    (r"\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d [+-]\d{4}", "<date>"),
    (r'"?\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z"?|"?<time(-\w+|\+\w+)?>"?', "<time>"),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\n]*|<file time>", "<file time>"),
    (r"https?://(server\b|127\.0\.0\.1:\d+)", "<server>"),
    (r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|<uid\d+>", "<uid>"),
    (r"(resourceVersion|Resource Version)(\\?\"?: *)\\?\"?(\d+|<rv\d+>)\\?\"?", r"\1 <rv>"),
    (r"<rv\d+>", "<rv>"),
    # Names made by controllers: a hash of the template, five random characters.
    (r"\b(web|mini)-[bcdf-hj-np-tv-z2456789]{8,10}\b", r"\1-<hash>"),
    (r"(pod-template-hash=)[a-z0-9]+", r"\1<hash>"),
    (r"(-<hash>|\bjob|\bweb)-(<gen\d+>|[bcdf-hj-np-tv-z2456789]{5}\b)", r"\1-<gen>"),
    (r"10\.1\.0\.\d+", "<ip>"),
    (r"10\.0\.0\.\d{2,}", "<ip>"),
    (r"\S*/(LIVE|MERGED)-\d+", r"\1"),
    # Columns are as wide as what stands in them.
    (r"-{3,}", "---"),
    (r"[ \t]+", " "),
    # Not amounts: those follow a colon or stand in quotes.
    (r"(?<![\w.\"])(?<!: )(?<!for )(\d+[dhms])+(?![\w.])", "<age>"),
    (r"Duration: \d+s", "Duration: <age>"),
    # Where the pods of the deployment run was up to the recorded scheduler.
    (r"(-<gen> \S+ \S+ \S+ <age> <ip>) n\d", r"\1 <node>"),
    (r" ?\n", "\n"),
)


def normal(text: str) -> str:
    """Two outputs with the same normal form say the same."""
    for pattern, word in _RULES:
        text = re.sub(pattern, word, text)
    lines = list(_once(text.strip().split("\n")))
    # kubectl drains a node's pods side by side, so whose line comes first is up to the machine.
    places = [i for i, line in enumerate(lines) if line.startswith(_EVICTING)]
    for place, line in zip(places, sorted(lines[i] for i in places), strict=True):
        lines[place] = line
    return "\n".join(lines)


_EVICTING = ("evicting pod ", "error when evicting pods")


def _once(lines: list[str]) -> Iterator[str]:
    """How often kubectl tries to evict a pod in some seconds is up to the machine."""
    seen = set()
    for line in lines:
        if line.startswith(_EVICTING):
            if line in seen:
                continue
            seen.add(line)
        yield line
