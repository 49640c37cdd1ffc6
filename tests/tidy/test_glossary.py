"""The field's words: identifiers use none of the words that the glossary has replaced, and texts
none of those that make a riddle of a sentence.

Source: docs/glossary.md. Identifiers are split at underscores and capitals, so `toldOf` and
`_TOLD_MAX` have the word `told`.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import PurePath

from tests.tidy import tree

# Word, or words in a row -> what to write.
REPLACEMENTS = {
    "agenda": "event queue",
    "anybody": "any, or the plain noun",
    "as ever": "v0_5",
    "beginning": "bootstrap objects, start",
    "captain": "cluster script",
    "company": "peers, the plain noun",
    "complaint": "fit errors, problem, reason",
    "complaints": "fit errors, problems, reasons",
    "crank": "server loop",
    "crew": "test plugins",
    "crowd": "nominated pods, the plain noun",
    "crowds": "nominated pods, the plain noun",
    "desk": "API dispatcher",
    "dice": "rng, random source",
    "doubtful": "bind unknown",
    "drawn": "random, chosen, affinity",
    "fleet": "nodes, servers",
    "furnish": "create objects",
    "furnished": "created",
    "guard": "authn, authz, check",
    "habits": "pod lifecycle",
    "hands": "API dispatcher",
    "hollow": "kubelet, simulated node",
    "house": "package",
    "hub": "watch cache",
    "journey": "binding cycle",
    "judge": "filter, comparer, check",
    "judged": "filtered, compared, checked",
    "leftover": "unschedulable flush",
    "lent": "borrowed",
    "lots": "tie-break",
    "mate": "test plugin",
    "mended": "fixed",
    "month": "long run",
    "newcomers": "handshake limit",
    "nobody": "none, or the plain noun",
    "parked": "unschedulable",
    "porter": "acceptor",
    "pump": "server loop",
    "put back": "add_unschedulable_if_not_present, requeue",
    "said": "reported, answer, status",
    "says": "reports, declares",
    "sea": "cluster churn",
    "second opinion": "extender handlers",
    "shadow": "decision comparer",
    "shelf": "registry store",
    "shown": "observed, formatted, text",
    "somebody": "the plain noun",
    "spelt": "encoded, written",
    "spoilt": "invalid",
    "standing": "unschedulable index, the plain noun",
    "stirs": "revision",
    "storm": "fault run",
    "storms": "fault runs",
    "story": "event log",
    "stray": "orphan, unknown",
    "strays": "orphans",
    "tell": "report, notify, handle",
    "tells": "reports, notifies",
    "told": "reported, notified, recorded",
    "town": "cluster script",
    "unfit": "fit errors, infeasible",
    "vain": "without effect",
    "voyage": "random walk",
    "whoever": "the plain noun",
    "wish": "request",
    "world": "cluster, object store",
    "worlds": "clusters, object stores",
    "worth": "queueing strategy, worthwhile is a comparison",
}
# "path:identifier", "*:identifier" where it stays everywhere -> why it stays.
EXCEPTIONS = {
    "src/stowplan/apis/batch/cron_schedule.py:month": "of the calendar",
    "src/stowplan/apis/machinery/timestamps.py:month": "of the calendar",
    "src/stowplan/benchmarks/cases/stowplan_cases.py:unfit": "name of a benchmark",
    "src/stowplan/conformance/queue_scripts.py:_on_flush_leftover": "verb of recorded scripts",
    "src/stowplan/forecast/queue_shares.py:strays": "field of the JSON of `stowplan queues`",
    "*:hollow_nodes": "users know simulated nodes as hollow nodes, as of kubemark",
    "*:make_hollow_nodes": "as hollow_nodes",
    "src/stowplan/inputs/cluster_reader.py:world": "old name, for a release",
    "src/stowplan/framework/handle_state.py:world": "old name that plugins use, for a release",
    "src/stowplan/framework/snapshot.py:world": "old name that plugins use, for a release",
    "src/stowplan/driver/blocking_queue.py:put_back": "old name, for a release",
    "src/stowplan/batch/session.py:complaints": "old name, for a release",
    "src/stowplan/batch/session.py:dice": "old name, for a release",
    "src/stowplan/batch/state/jobs.py:complaint": "old name, for a release",
    "src/stowplan/queue/options.py:flush_leftover_s": "old name, for a release",
    "src/stowplan/queue/options.py:max_parked_s": "old name, for a release",
}
TOPS = ("src", "tests", "bench")
# Of docstrings, comments, messages and pages: name who or what acts, in words of today.
RIDDLE = re.compile(
    r"\b(?:told|whoever|somebody|nobody|anybody|in vain|whence|hence|thereof|amiss)\b",
    re.IGNORECASE,
)
# A change log is history; quoted words of the original stay.
TEXT_ENDINGS = (".py", ".js", ".css", ".html", ".md")
TEXTS_LEFT = {"CHANGELOG.md", "docs/parity-api.md"}
WORD = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|\d+")


@cache
def found_words(identifier: str) -> tuple[str, ...]:
    """The replaced words of an identifier."""
    words = [word.lower() for word in WORD.findall(identifier)]
    rows = {*words, *(" ".join(two) for two in pairwise(words))}
    return tuple(sorted(rows & REPLACEMENTS.keys()))


@cache
def identifiers(text: str) -> tuple[tuple[int, str], ...]:
    """Line and name of everything that a text defines, locals and parameters included."""
    return tuple(_identifiers(text))


def _identifiers(text: str) -> Iterator[tuple[int, str]]:
    for defined in tree.nodes(text, ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef):
        yield defined.lineno, defined.name
    for name in tree.nodes(text, ast.Name):
        if isinstance(name.ctx, ast.Store):
            yield name.lineno, name.id
    for attribute in tree.nodes(text, ast.Attribute):
        if isinstance(attribute.ctx, ast.Store):
            yield attribute.lineno, attribute.attr
    for argument in tree.nodes(text, ast.arg):
        yield argument.lineno, argument.arg
    for alias in tree.nodes(text, ast.alias):
        if alias.asname:
            yield alias.lineno, alias.asname


def replaced_words(where: str, text: str, exceptions: Mapping[str, str]) -> list[str]:
    """A line per place at which an identifier, or the module's name, has a replaced word."""
    seen = {(name, line) for line, name in identifiers(text)}
    seen |= {(part, 1) for part in PurePath(where).with_suffix("").parts[1:]}
    return [
        f"{where}:{line}: {name}: for {word!r} write: {REPLACEMENTS[word]}"
        for name, line in sorted(seen, key=lambda one: (one[1], one[0]))
        if f"{where}:{name}" not in exceptions and f"*:{name}" not in exceptions
        for word in found_words(name)
    ]


def test_identifiers_are_of_the_glossary() -> None:
    problems = [
        line
        for path in tree.python(*TOPS)
        for line in replaced_words(tree.name(path), tree.read(path), EXCEPTIONS)
    ]
    assert not problems, tree.report(problems)


def riddles(where: str, text: str) -> list[str]:
    """A line per place at which a text has such a word."""
    return [
        f"{where}:{number}: {found[0]}"
        for number, line in enumerate(text.splitlines(), 1)
        for found in RIDDLE.finditer(line)
    ]


def test_texts_name_who_acts() -> None:
    problems = [
        line
        for path in tree.files()
        if path.suffix in TEXT_ENDINGS
        and (where := tree.name(path)) not in TEXTS_LEFT
        and not where.startswith(("tests/", "bench/"))
        for line in riddles(where, tree.read(path))
    ]
    assert not problems, tree.report(problems)


def test_control_riddles() -> None:
    text = "# Nobody is told.\n'Somebody else has it, hence the wait.'\nretold = enhanced = 1\n"
    found = [line.split(": ")[1] for line in riddles("docs/page.md", text)]
    assert found == ["Nobody", "told", "Somebody", "hence"]


def test_exceptions_exist() -> None:
    used = {
        f"{where}:{name}"
        for path in tree.python(*TOPS)
        for _, name in identifiers(tree.read(path))
        if found_words(name)
        for where in ("*", tree.name(path))
    }
    assert not (unused := EXCEPTIONS.keys() - used), sorted(unused)


def test_control_planted() -> None:
    text = (
        "class TownCrier:\n"
        "    def put_back(self, nobody): self.STORMS = told = 1\n"
        "    def world_of(self): return [said for said in self.known]\n"
    )
    found = replaced_words("src/stowplan/queue/parked.py", text, {})
    assert [line.split(": ")[1] for line in found] == [
        "TownCrier",
        "parked",
        "STORMS",
        "nobody",
        "put_back",
        "told",
        "said",
        "world_of",
    ]
    assert replaced_words("src/stowplan/sea.py", "", {"*:sea": "planted"}) == []


def test_control_planted_in_tests() -> None:
    text = "def test_nobody_binds(world): told = world.said"
    found = replaced_words("tests/queue/test_heap.py", text, EXCEPTIONS)
    names = [line.split(": ")[1] for line in found]
    assert names == ["test_nobody_binds", "told", "world"]
    assert {path.relative_to(tree.ROOT).parts[0] for path in tree.python(*TOPS)} == set(TOPS)


def test_control_parts_of_words_are_free() -> None:
    text = "def understanding(seat, hubris, toldness): brainstorm = storage = 1\n"
    assert replaced_words("src/stowplan/queue/heap.py", text, {}) == []
