"""Each exposed metric has a HELP text of its own that names what is counted, and its unit."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest

from stowplan.apis.machinery.http_messages import HttpRequest, User
from stowplan.apiserver.discovery.operation_pages import OperationPages
from stowplan.apiserver.http.request_counters import RequestCounters
from stowplan.driver.live import exposition
from stowplan.driver.live.metrics_help import HELP, help_of

SRC = Path(__file__).parents[2] / "src" / "stowplan"
PREFIX = "scheduler|volcano|stowplan|rest_client|leader_election"
CONSTANT = re.compile(rf'^[A-Z0-9_]+ = "((?:{PREFIX})_[a-z0-9_]+)"$', re.MULTILINE)
UNITS = ("seconds", "milliseconds", "microseconds", "bytes")
# Words of a name that say nothing about what is counted.
PREFIXES = {"scheduler", "volcano", "stowplan", "total", "count", "counts", "duration", "latency"}
DERIVED = {"preemptors": "preemption", "unschedule": "schedule", "scheduling": "schedul"}


def metric_names() -> dict[str, str]:
    """Metric name -> file, of each module constant that is a metric's name."""
    found: dict[str, str] = {}
    for file in sorted(SRC.rglob("*.py")):
        for match in CONSTANT.finditer(file.read_text()):
            found[match[1]] = file.name
    return found


def faults_of(texts: Mapping[str, str]) -> list[str]:
    """What is wrong with HELP texts, by name."""
    found = [f"{name}: no HELP text" for name, text in texts.items() if not text.strip()]
    times = Counter(text for text in texts.values() if text.strip())
    found += [f"{name}: HELP text of another metric" for name in texts if times[texts[name]] > 1]
    for name, text in texts.items():
        words = text.lower()
        unit = next((unit for unit in UNITS if unit in name.split("_")), None)
        if unit and not re.search(rf"\b{unit}\b", words):
            found.append(f"{name}: HELP text without the unit {unit!r}: {text}")
        nouns = set(name.split("_")) - PREFIXES - set(UNITS)
        if not any(_stem(noun) in words for noun in nouns):
            found.append(f"{name}: HELP text names none of {sorted(nouns)}: {text}")
    return found


def _stem(noun: str) -> str:
    noun = DERIVED.get(noun, noun)
    return noun.removesuffix("s")


def controller_texts() -> dict[str, str]:
    """HELP texts of the API server's own page."""

    class Faults:
        counts: Mapping[str, int] = {}

        def failing(self) -> dict[str, int]:
            return {}

    class Server:
        faults = Faults()

        def metric_lines(self) -> list[str]:
            return list(RequestCounters().lines((), lambda path: 0, (), {}))

    request = HttpRequest("GET", "/metrics")
    page = OperationPages().answer(request, User("u"), Server(), 0.0)  # type: ignore[arg-type]
    assert page is not None
    lines = page.body.decode().splitlines()
    return dict(line.split(" ", 3)[2:] for line in lines if line.startswith("# HELP"))


def test_every_metric_has_a_help_text() -> None:
    names = metric_names()
    assert names.keys() == HELP.keys(), {
        name: names.get(name, "") for name in names.keys() ^ HELP.keys()
    }


def test_help_texts_are_unique_and_name_what_is_counted() -> None:
    texts = HELP | controller_texts()
    assert len(texts) == len(HELP) + 9
    assert not faults_of(texts)


def test_the_page_takes_every_text_from_the_table() -> None:
    tree = ast.parse(Path(exposition.__file__).read_text())
    strings = [n.value for n in ast.walk(tree) if isinstance(n, ast.Constant)]
    assert not [s for s in strings if isinstance(s, str) and s.endswith(".") and s in HELP.values()]
    calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
    made = [ast.unparse(call.func) for call in calls]
    assert not [name for name in made if name.endswith("MetricFamily")]
    assert "_family" in made


def test_an_unknown_metric_is_named_by_its_name() -> None:
    assert "plugin_cache_hits" in help_of("plugin_cache_hits")


@pytest.mark.parametrize(
    ("planted", "fault"),
    [
        ({"scheduler_pending_pods": " "}, "no HELP text"),
        ({"scheduler_pods": "Number of pods.", "rest_pods": "Number of pods."}, "another metric"),
        ({"scheduler_permit_wait_duration_seconds": "Duration of a permit."}, "unit 'seconds'"),
        ({"scheduler_cache_size": "Of sessions."}, "names none of ['cache', 'size']"),
    ],
)
def test_a_bad_text_is_caught(planted: dict[str, str], fault: str) -> None:
    assert any(fault in found for found in faults_of(planted))
