"""The page of known differences says what the tests use; what it does not list is told."""

import os

import pytest

from stowplan.apis.machinery.http_messages import HttpResponse
from tests.contract.apiserver import parity
from tests.contract.apiserver.not_modelled import NotModelled
from tests.contract.apiserver.recorded_server import RestartableCluster
from tests.contract.apiserver.replay import START, Replay, scenarios
from tests.contract.apiserver.symbols import Symbols

REWRITES = bool(os.environ.get("STOWPLAN_GOLDEN"))


def test_the_page_states_what_the_tests_use() -> None:
    if REWRITES:
        parity.PAGE.write_text(parity.page(), encoding="utf-8")
    assert parity.PAGE.read_text(encoding="utf-8") == parity.page()


def test_an_unused_entry_is_reported() -> None:
    stale = NotModelled("watch", "watch-cut", 1, "status", "a reason")
    assert parity.problems("watch", "watch-cut", [stale]) == [
        "1 status: listed, but does not differ"
    ]


class Forgetful(RestartableCluster):
    """A wrong server: every answer with a body loses what makes versions newer."""

    def handle(self, request, now):  # type: ignore[no-untyped-def]
        answer = super().handle(request, now)
        if isinstance(answer, HttpResponse) and request.method == "PATCH":
            body = answer.body.replace(b'"resourceVersion":"', b'"resourceVersion":"9')
            return HttpResponse(answer.status, answer.headers, body)
        return answer


def test_a_wrong_server_is_found_out() -> None:
    scenario = next(s for s in scenarios("watch") if s["scenario"] == "watch-basic")
    replay = Replay(scenario, Forgetful("plain", START), START)
    replay.run()
    assert any("resourceVersion" in finding.where for _, finding in replay.findings)


@pytest.mark.parametrize(
    ("wanted", "got", "fits"),
    [
        ("<rv2>", "7", True),
        ("<rv2>", "3", False),
        ("<uid1>", "not-a-uid", False),
        ("<time>", "2001-01-01T00:00:00Z", False),
        ("a <rv1> b", "a 5 b", True),
        ("a <rv1> b", "a 5 c", False),
    ],
)
def test_symbols_stand_for_what_they_look_like(wanted: str, got: str, fits: bool) -> None:
    symbols = Symbols({})
    symbols.now = START
    assert not list(symbols.text("here", "<rv1>", "5"))
    assert (not list(symbols.text("here", wanted, got))) is fits
