"""Pods that repeat others except for the name are stored as if each were worked out."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apis.protobuf.object_codec import object_codec
from stowplan.apiserver.admission import admission_plugins
from stowplan.apiserver.http import repeated_creations
from stowplan.apiserver.http.repeated_creations import RepeatedCreations
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.server import ApiServer
from stowplan.objects.encoding.tree import Tree
from tests.apiserver.whole_server import NOW
from tests.soak import examples

JSON, PROTOBUF = "application/json", "application/vnd.kubernetes.protobuf"
SPACE = "/api/v1/namespaces/default"
PODS = f"{SPACE}/pods"
CONTAINER = {"name": "c", "image": "x:1", "resources": {"requests": {"cpu": "1"}}}
Write = tuple[str, str, dict[str, Any], str, str]
"""Method, path, body, media type and user agent."""


def pod(name: str, **fields: Any) -> Tree:
    """fields: of the spec, but for labels and annotations."""
    meta: Tree = {"name": name} if name else {"generateName": "made-"}
    for key in ("labels", "annotations"):
        if key in fields:
            meta[key] = fields.pop(key)
    spec = {"containers": [CONTAINER], **fields}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def namespaced(kind: str, name: str, **more: Any) -> Tree:
    return {"apiVersion": "v1", "kind": kind, "metadata": {"name": name}, **more}


class Server:
    """A server with service accounts, whose clock stands unless it is told."""

    def __init__(self, *, repeats: bool) -> None:
        options = ApiServerOptions(
            registry=built_in_registry(), admission=admission_plugins(accounts=True, taints=False)
        )
        self.server = ApiServer(options, np.random.default_rng(7))
        self.now = NOW
        if not repeats:
            self.server.repeated._is_on = False
        self.ask("POST", "/api/v1/namespaces", namespaced("Namespace", "default"))
        self.ask("POST", f"{SPACE}/serviceaccounts", namespaced("ServiceAccount", "default"))

    def ask(
        self, method: str, path: str, body: Tree, media: str = JSON, agent: str = "a/1"
    ) -> tuple[int, bytes]:
        path, _, query = path.partition("?")
        pairs = tuple((a, b) for a, _, b in (one.partition("=") for one in query.split("&") if one))
        raw = object_codec().encode(body) if media == PROTOBUF else json.dumps(body).encode()
        headers = {"content-type": media, "accept": JSON, "user-agent": agent}
        made = self.server.handle(HttpRequest(method, path, pairs, headers, raw), self.now)
        assert isinstance(made, HttpResponse)
        self.server.tick(self.now)
        return made.status, made.body

    def content(self) -> list[tuple[str, bytes]]:
        store = self.server.store
        return [(key, value) for key, _, value in sorted(store.records()) if value is not None]

    def is_used(self) -> bool:
        """True if a form may be used."""
        forms = self.server.repeated._forms.values()
        return any(form.is_checked for some in forms for form in some)


TEMPLATES = (
    pod("NAME"),
    pod("NAME", labels={"app": "web"}),
    pod("NAME", labels={"app": "NAME"}),
    pod("NAME", labels={"app": "x-NAME-y"}),
    pod("NAME", priorityClassName="high"),
    pod("NAME", schedulingGates=[{"name": "g"}]),
    pod("NAME", serviceAccountName="other"),
    pod("NAME", automountServiceAccountToken=False, annotations={"a": "100 %"}),
    pod("NAME", containers=[{**CONTAINER, "name": "NAME"}]),
    pod("NAME", containers=[{**CONTAINER, "resources": {}}], hostNetwork=True),
    pod(""),
    pod("", labels={"app": "web"}),
)
LIMITS = {"limits": [{"type": "Container", "default": {"cpu": "2"}}]}
OTHERS: tuple[Write, ...] = (
    ("POST", f"{SPACE}/limitranges", namespaced("LimitRange", "l", spec=LIMITS), JSON, ""),
    ("DELETE", f"{SPACE}/limitranges/l", {}, JSON, ""),
    ("POST", f"{SPACE}/serviceaccounts", namespaced("ServiceAccount", "other"), JSON, ""),
    ("PATCH", f"{SPACE}/serviceaccounts/default", {"automountServiceAccountToken": False},
     "application/merge-patch+json", ""),
    ("PATCH", "/api/v1/namespaces/default",
     {"metadata": {"labels": {"pod-security.kubernetes.io/enforce": "baseline"}}},
     "application/merge-patch+json", ""),
    ("POST", "/apis/scheduling.k8s.io/v1/priorityclasses",
     {"metadata": {"name": "high"}, "value": 10}, JSON, ""),
    ("POST", "/apis/scheduling.k8s.io/v1/priorityclasses",
     {"metadata": {"name": "usual"}, "value": 5, "globalDefault": True}, JSON, ""),
    ("POST", f"{SPACE}/resourcequotas",
     namespaced("ResourceQuota", "q", spec={"hard": {"pods": "6"}}), JSON, ""),
    ("DELETE", f"{SPACE}/resourcequotas/q", {}, JSON, ""),
    ("DELETE", f"{PODS}/p1", {}, JSON, ""),
)  # fmt: skip


@st.composite
def creations(draw: st.DrawFn) -> list[Write]:
    """Several pods of one template, sent in the same way."""
    tree = json.dumps(draw(st.sampled_from(TEMPLATES)))
    media = draw(st.sampled_from((JSON, JSON, PROTOBUF)))
    agent = draw(st.sampled_from(("a/1", "b/1")))
    query = draw(st.sampled_from(("", "", "?fieldManager=m", "?dryRun=All")))
    names = draw(st.lists(st.sampled_from(("p1", "p2", "p3", "p4", "p5", "q.1", "Q", "p-123")),
                          min_size=1, max_size=8))  # fmt: skip
    bodies = [json.loads(tree.replace("NAME", name)) for name in names]
    return [("POST", PODS + query, body, media, agent) for body in bodies]


WRITES = st.lists(st.one_of(creations(), creations(), st.sampled_from(OTHERS).map(lambda w: [w])),
                  min_size=2, max_size=10)  # fmt: skip


def differs(groups: list[list[Write]]) -> str:
    """What a server that uses forms answers or stores otherwise; "" for nothing."""
    quick, plain = Server(repeats=True), Server(repeats=False)
    for at, (method, path, body, media, agent) in enumerate(w for group in groups for w in group):
        for one in (quick, plain):
            one.now = NOW + at // 3
        answers = [one.ask(method, path, body, media, agent) for one in (quick, plain)]
        if answers[0] != answers[1]:
            return f"{answers[0]!r} is not {answers[1]!r}"
    return "" if quick.content() == plain.content() else "other content"


@settings(max_examples=examples(60), deadline=None)
@given(WRITES)
def test_repeated_creations_are_as_if_worked_out(groups: list[list[Write]]) -> None:
    assert differs(groups) == ""


def many(tree: Tree, count: int, media: str = JSON, start: int = 0) -> list[Write]:
    text = json.dumps(tree)
    names = [f"n{at}" for at in range(start, start + count)]
    return [("POST", PODS, json.loads(text.replace("NAME", name)), media, "a/1") for name in names]


SEQUENCES = {
    "another account": [many(TEMPLATES[0], 5), [OTHERS[3]], many(TEMPLATES[0], 3, start=5)],
    "a limit range": [many(TEMPLATES[9], 5), [OTHERS[0]], many(TEMPLATES[9], 3, start=5)],
    "a default class": [many(TEMPLATES[1], 5), [OTHERS[6]], many(TEMPLATES[1], 3, start=5)],
    "a security level": [many(TEMPLATES[9], 5), [OTHERS[4]], many(TEMPLATES[9], 3, start=5)],
    "a quota": [many(TEMPLATES[0], 5), [OTHERS[7]], many(TEMPLATES[0], 5, start=5)],
    "a name twice": [many(TEMPLATES[0], 5), many(TEMPLATES[0], 3, start=3)],
    "times of gates": [many(TEMPLATES[5], 7)],
    "protobuf": [many(TEMPLATES[1], 12, PROTOBUF)],
    "generated names": [many(TEMPLATES[10], 7)],
    "a name that is no label": [many(TEMPLATES[0], 4), [("POST", PODS, pod("A"), JSON, "a/1")]],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_what_ends_a_form(name: str) -> None:
    assert differs(SEQUENCES[name]) == ""


@pytest.mark.parametrize("media", [JSON, PROTOBUF])
@pytest.mark.parametrize("at", [0, 1, 7, 10, 11])
def test_forms_are_used(at: int, media: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = Server(repeats=True)
    for method, path, body, _, agent in many(TEMPLATES[at], 3):
        assert one.ask(method, path, body, media, agent)[0] == 201
    assert one.is_used()

    def worked_out(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(one.server.writes, "create", worked_out)
    for method, path, body, _, agent in many(TEMPLATES[at], 3, start=3):
        assert one.ask(method, path, body, media, agent)[0] == 201


@pytest.mark.parametrize("at", [2, 3, 8])
def test_names_in_two_places_make_no_form(at: int) -> None:
    one = Server(repeats=True)
    for write in many(TEMPLATES[at], 6):
        one.ask(*write)
    assert not one.is_used()


def test_plugins_of_the_server_let_creations_repeat() -> None:
    plugins = admission_plugins(accounts=True, taints=True)
    assert [type(one).__name__ for one in plugins if not getattr(one, "repeatable", False)] == []


def test_a_plugin_of_others_makes_no_form() -> None:
    class Counting:
        def admit(self, call: object, obj: object, old: object) -> None:
            """Whatever it does, it is called each time."""

        validate = admit

    options = ApiServerOptions(registry=built_in_registry(), admission=(Counting(),))
    assert not ApiServer(options, np.random.default_rng(1)).repeated._is_on


def test_reads_that_are_forgotten_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variant: a form counts whatever is written."""
    monkeypatch.setattr(RepeatedCreations, "_is_current", lambda self, form: True)
    wrong = [name for name, groups in SEQUENCES.items() if differs(groups)]
    assert {"another account", "a limit range", "a default class", "a security level"} <= set(wrong)


def test_names_that_are_not_looked_at_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variant: anything between the two parts of a body counts as a name."""
    import re

    monkeypatch.setattr(repeated_creations, "_LABEL", re.compile(rb".*"))
    assert differs(SEQUENCES["a name that is no label"])


def test_values_in_other_places_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variant: a time stands where it stood in the first pod, in a condition."""
    monkeypatch.setattr(repeated_creations, "_is_elsewhere", lambda values, constants: False)
    assert differs(SEQUENCES["times of gates"])
