"""What one request may cost: long lists for every list of every kind, long numbers, deep nesting,
odd types of content. No 5xx, time that grows with the body and no faster, memory that stays.
"""

from __future__ import annotations

import gc
import json
import random
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from stowplan.apis.core import pod_scheduling
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, WatchResponse
from stowplan.apis.machinery.resource import Resource
from tests.apiserver.fuzzing import Target, targets
from tests.apiserver.test_fuzz import KNOWN_500, NODE, POD
from tests.contract.apiserver.recorded_server import RestartableCluster
from tests.soak import factor

NOW = 1_790_000_000.0
ADMIN = {"authorization": "Bearer admin-token"}
DIGITS = "9" * 5000
SHORT_BYTES = 100_000
STEP = 4
RATIO_MAX = 7.0
"""Of the time of a body to that of one a quarter as long; 4 is linear, 16 quadratic."""
CALLS_RATIO_MAX = 5.0
"""Of the calls of such bodies. They are counted, so the same on every machine."""
FAR_STEP, FAR_RATIO_MAX, FAR_TURNS = 16, 40.0, 8
"""Of the least time of a body 16 times as long in so many turns. What is linear takes 16 times
as long on any machine; of what is quadratic for a quarter of its time at 2 * SHORT_BYTES, 50."""
NOTICED_S = 0.02
SECONDS_MAX = 1.0
GROWTH_MAX, ROUNDS = 2 << 20, 5
MEDIA = (
    "application/json",
    "application/yaml",
    "application/merge-patch+json",
    "application/strategic-merge-patch+json",
    "application/json-patch+json",
    "application/vnd.kubernetes.protobuf",
    "text/plain",
)
ODD_VALUES = (
    DIGITS,
    f"-{DIGITS}",
    f"{DIGITS}%",
    f"{DIGITS}m",
    f"0.{DIGITS}",
    f"1e{DIGITS}",
    f"2001-01-01T00:00:00.{DIGITS}Z",
    "²",
    "٣",
    "1_0",
    " 1 ",
    10**300,
    -(10**300),
    2**63,
    1e308,
    0.5,
    "x" * 100_000,
    "\x00\ud800",
    [[[[[[[[]]]]]]]],
    {"a" * 5000: {"b": None}},
    None,
    True,
)
PARAMETERS = (
    "limit",
    "timeoutSeconds",
    "gracePeriodSeconds",
    "resourceVersion",
    "continue",
    "watch",
    "dryRun",
    "fieldValidation",
)
SELECTORS = (
    f"a>{DIGITS}",
    f"a<-{DIGITS}",
    "a in (" + ",".join(f"x{n}" for n in range(3000)) + ")",
    "!" * 3000,
    "(" * 3000,
    ",".join(f"!a{n}" for n in range(1000)),
)
RAW_BODIES = (
    b"- " * 30_000,
    b"[" * 60_000,
    b'{"a":' * 60_000,
    b"[" * 900 + b"x",
    b'{"kind":' + b"[" * 900 + b"]" * 900 + b',"kind":"Pod"}',
    b'{"gracePeriodSeconds":' + DIGITS.encode() + b"}",
    b"gracePeriodSeconds: " + DIGITS.encode(),
    b"a: " + b"1:" * 2000 + b"1",
    b"k8s\x00" + b"\x0a\x04\x0a\x00\x12\x00" * 10_000,
    b'[{"op":"remove","path":"/spec/containers/' + DIGITS.encode() + b'"}]',
    b'{"spec":{"containers":[' + b'{"$patch":"delete","name":"a"},' * 3000 + b"{}]}}",
)


def path_of(resource: Resource) -> str:
    """Where objects of a kind are created."""
    start = "/apis" if resource.group else "/api"
    within = "/namespaces/default" if resource.namespaced else ""
    return f"{start}/{resource.api_version}{within}/{resource.plural}"


class Attacker:
    """Requests of a seed, sent to one server."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.cluster = RestartableCluster("plain", NOW)
        self.kinds = [
            one
            for one in self.cluster.server.registry.all()
            if "create" in one.verbs and hasattr(one.schema, "struct")
        ]
        self.lists = [target for kind in self.kinds for target in targets(kind)]
        self.scalars = [target for kind in self.kinds for target in targets(kind, scalars=True)]
        for place, made in (("/api/v1/namespaces/default/pods", POD), ("/api/v1/nodes", NODE)):
            self.ask(HttpRequest("POST", place, (), ADMIN, json.dumps(made).encode()))

    def ask(self, request: HttpRequest) -> int:
        """The status of an answer, which is no 5xx but a known one."""
        answer = self.cluster.handle(request, NOW)
        if isinstance(answer, WatchResponse):
            self.cluster.close(answer.number)
            return answer.status
        assert isinstance(answer, HttpResponse)
        known = answer.status < 500
        if answer.status == 500 and answer.body.startswith(b"{"):
            known = bool(KNOWN_500.fullmatch(json.loads(answer.body)["message"]))
        if answer.status == 504:
            known = b"Too large resource version" in answer.body
        assert known, (request.method, request.path, request.query, request.body[:200], answer)
        return answer.status

    def request(self) -> HttpRequest:
        """The next one."""
        draw = self.rng
        if draw.random() < 0.2:
            body = draw.choice(RAW_BODIES)
            kind = draw.choice(self.kinds)
        elif draw.random() < 0.4:
            target = draw.choice(self.lists)
            kind = target.resource
            body = json.dumps(target.body(draw.choice((1, 30, 300)), draw.random() < 0.5)).encode()
        else:
            target = draw.choice(self.scalars if draw.random() < 0.8 else self.lists)
            kind = target.resource
            body = json.dumps(target.with_value(draw.choice(ODD_VALUES))).encode()
        method = draw.choice(("POST", "POST", "POST", "PUT", "PATCH", "DELETE", "GET"))
        media = draw.choice(MEDIA) if method == "PATCH" or draw.random() < 0.3 else MEDIA[0]
        accept = draw.choice(
            ("", "", "application/yaml", "application/json;as=Table;v=v1;g=meta.k8s.io")
        )
        query = [(name, DIGITS) for name in draw.sample(PARAMETERS, draw.choice((0, 0, 1)))]
        if method in ("GET", "DELETE") and draw.random() < 0.5:
            query.append(("labelSelector", draw.choice(SELECTORS)))
        path = path_of(kind)
        if method in ("PUT", "PATCH") or draw.random() < 0.2:
            path += draw.choice(("/x", "/p", "/n", "/x/status", "/p/status"))
        headers = {**ADMIN, "content-type": media, "accept": accept}
        return HttpRequest(method, path, tuple(query), headers, body)

    def creation(self, target: Target, length: int, alike: bool) -> HttpRequest:
        """Creates an object with a list of about so many bytes."""
        each = max(1, len(json.dumps(target.body(100, alike))) // 100)
        body = json.dumps(target.body(length // each, alike)).encode()
        return HttpRequest("POST", path_of(target.resource), (("dryRun", "All"),), ADMIN, body)

    def seconds(self, request: HttpRequest) -> float:
        """This thread's processor time for it, in which nothing is collected."""
        gc.disable()
        try:
            begun = time.thread_time()
            self.ask(request)
            return time.thread_time() - begun
        finally:
            gc.enable()

    def calls(self, request: HttpRequest) -> int:
        """Calls, returns and steps of generators that it takes."""
        count = 0

        def counted(*_: object) -> None:
            nonlocal count
            count += 1

        sys.setprofile(counted)
        try:
            self.ask(request)
        finally:
            sys.setprofile(None)
        return count

    def grows_too_fast(self, target: Target, alike: bool, turns: int = FAR_TURNS) -> bool:
        """True if work grows faster than length.

        One look at the time says what has to be looked at closely: by the number of calls, and
        for comparisons that are no calls by the least times of lengths far from each other.
        """
        short, long = (self.creation(target, SHORT_BYTES * step, alike) for step in (1, STEP))
        after = self.seconds(long)
        if after < NOTICED_S or after < RATIO_MAX * self.seconds(short):
            return False
        far = self.creation(target, SHORT_BYTES * FAR_STEP, alike)
        # What is kept of short lists only makes the first ratio large, a quadratic check both.
        if self.calls(long) > CALLS_RATIO_MAX * self.calls(short):
            return self.calls(far) > CALLS_RATIO_MAX * self.calls(long)
        least = [float("inf"), float("inf")]
        for _ in range(turns):
            least = [min(least[0], self.seconds(short)), min(least[1], self.seconds(far))]
            if least[1] < FAR_RATIO_MAX * least[0]:
                return False
        return True


LENGTHS = pytest.mark.parametrize("length", [1, pytest.param(factor(), marks=pytest.mark.soak)])
"""A sample in `make test`, and as much more in `make soak` as STOWPLAN_SOAK says."""


@pytest.fixture(scope="module")
def attacker() -> Attacker:
    """One for all: what earlier requests have left only makes for more variety."""
    return Attacker(1)


@LENGTHS
def test_no_request_is_answered_by_a_fault(attacker: Attacker, length: int) -> None:
    for _ in range(400 * length):
        attacker.ask(attacker.request())


@pytest.mark.slow
@LENGTHS
def test_time_grows_with_the_list_and_no_faster(attacker: Attacker, length: int) -> None:
    tried = [(target, alike) for target in attacker.lists for alike in (False, True)]
    tried = attacker.rng.sample(tried, min(len(tried), 20 * length))
    named = [one for one in attacker.lists if one.path.endswith(SLOW_ONCE)]
    assert len(named) >= len(SLOW_ONCE)
    tried += [(target, False) for target in named]
    assert [one.path for one, alike in tried if attacker.grows_too_fast(one, alike)] == []


SLOW_ONCE = (
    "pods: spec.containers.resources.claims",
    "configmaps: metadata.ownerReferences",
    "pods: spec.topologySpreadConstraints",
    "pods: spec.containers.ports",
    "resourcequotas: spec.scopes",
    "services: spec.ports",
)


def each_with_each_in_python(given: list[Any]) -> int:
    return sum(any(one == given[at] for one in given[at + 1 :]) for at in range(len(given)))


def each_with_each_in_c(given: list[Any]) -> int:
    return sum(given.index(one) + given.count(one) for one in given)


@pytest.mark.slow
@pytest.mark.parametrize("check", [each_with_each_in_python, each_with_each_in_c])
def test_a_check_of_each_with_each_is_caught(
    attacker: Attacker, monkeypatch: pytest.MonkeyPatch, check: Callable[[list[Any]], int]
) -> None:
    real: Callable[..., Any] = pod_scheduling.topology_spread_constraints

    def quadratic(given: list[Any], path: str) -> Any:
        assert check(given) >= 0
        return real(given, path)

    # Shorter bodies show it as well, in a tenth of the time. Their time is too short to say
    # anything at one look, so that all are looked at closely.
    monkeypatch.setattr(sys.modules[__name__], "SHORT_BYTES", SHORT_BYTES // 3)
    monkeypatch.setattr(sys.modules[__name__], "NOTICED_S", 0.0)
    monkeypatch.setattr(sys.modules[__name__], "RATIO_MAX", 0.0)
    (target,) = (one for one in attacker.lists if one.path.endswith(SLOW_ONCE[2]))
    assert not attacker.grows_too_fast(target, alike=False)
    monkeypatch.setattr(pod_scheduling, "topology_spread_constraints", quadratic)
    # On a busy machine the short body may take as long as the long one for once.
    assert any(attacker.grows_too_fast(target, alike=False, turns=1) for _ in range(20))


@pytest.mark.soak
def test_no_request_takes_a_second(attacker: Attacker) -> None:
    slow = []
    for target in attacker.rng.sample(attacker.lists, min(len(attacker.lists), 20 * factor())):
        asked = attacker.creation(target, 2 << 20, attacker.rng.random() < 0.5)
        if all(attacker.seconds(asked) > SECONDS_MAX for _ in range(FAR_TURNS)):
            slow.append(target.path)
    assert slow == []


@LENGTHS
def test_memory_stays(attacker: Attacker, length: int) -> None:
    """What is kept of requests grows in every round; what fills caches does not."""
    with traced():
        assert any(grown(attacker, length) < GROWTH_MAX * length for _ in range(ROUNDS))


@pytest.mark.slow
def test_what_is_kept_of_every_request_is_caught(
    attacker: Attacker, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, kept = attacker.cluster.handle, []

    def keeping(request: HttpRequest, now: float) -> Any:
        kept.append(b"." * 40_000)
        return real(request, now)

    monkeypatch.setattr(attacker.cluster, "handle", keeping)
    with traced():
        assert all(grown(attacker, 1) > GROWTH_MAX for _ in range(2))


@contextmanager
def traced() -> Iterator[None]:
    """Count what Python allocates: pages of the process also depend on what ran before."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def grown(attacker: Attacker, length: int) -> int:
    """Bytes that are allocated after some requests and were not before."""
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    for _ in range(75 * length):
        attacker.ask(attacker.request())
    gc.collect()
    return tracemalloc.get_traced_memory()[0] - before
