"""Pods that are bound as bytes are stored as if decoded; plain Bindings are read as by schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apis.core import binding
from stowplan.apis.core.binding import plain_binding
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apiserver.admission import admission_plugins
from stowplan.apiserver.http.body_decoding import decode_kind
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.server import ApiServer
from stowplan.objects.encoding.tree import Tree
from tests.apiserver.whole_server import NOW
from tests.property.wrong import assert_caught
from tests.soak import examples

JSON, MERGE = "application/json", "application/merge-patch+json"
SPACE = "/api/v1/namespaces/default"
POD = f"{SPACE}/pods/p"
ODD = '},"status":{"phase":"x"},"nodeName":'
"""A text that looks like keys of a pod."""
ZONE = {"topology.kubernetes.io/zone": "z"}
Step = tuple[str, str, Any, str]
"""Method, path, body and media type."""


class Server:
    """decodes: every pod that is bound."""

    def __init__(self, *, decodes: bool) -> None:
        options = ApiServerOptions(
            registry=built_in_registry(), admission=admission_plugins(accounts=False, taints=False)
        )
        self.server = ApiServer(options, np.random.default_rng(7))
        self.now = NOW
        if decodes:
            setattr(self.server, "rewrite", lambda *_: False)  # noqa: B010
        self.ask("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}}, JSON)
        for name, labels in (("n", {}), ("zoned", ZONE)):
            node = {"metadata": {"name": name, "labels": labels}}
            self.ask("POST", "/api/v1/nodes", node, JSON)

    def ask(self, method: str, path: str, body: Any, media: str) -> tuple[int, bytes]:
        path, _, query = path.partition("?")
        pairs = tuple((a, b) for a, _, b in (one.partition("=") for one in query.split("&") if one))
        stored = self.server.store.get("pods/default/p")
        meta = json.loads(stored)["metadata"] if stored else {"uid": "", "resourceVersion": ""}
        text = json.dumps(body).replace("UID", meta["uid"]).replace("-1", meta["resourceVersion"])
        headers = {"content-type": media, "accept": JSON, "user-agent": "a/1"}
        made = self.server.handle(
            HttpRequest(method, path, pairs, headers, text.encode()), self.now
        )
        assert isinstance(made, HttpResponse)
        self.server.tick(self.now)
        return made.status, made.body

    def content(self) -> list[Any]:
        return sorted(self.server.store.records())


def pod(spec: Tree, **meta: Any) -> Step:
    containers = [{"name": "c", "image": "x:1"}]
    body = {"metadata": {"name": "p", **meta}, "spec": {"containers": containers, **spec}}
    return "POST", f"{SPACE}/pods", body, JSON


def bound(meta: Tree, target: Tree, query: str = "") -> Step:
    head = {"apiVersion": "v1", "kind": "Binding"}
    body = {**head, "metadata": {"name": "p", **meta}, "target": target}
    return "POST", f"{POD}/binding{query}", body, JSON


def status(**fields: Any) -> Step:
    return "PATCH", f"{POD}/status", {"status": fields}, MERGE


NODE = {"kind": "Node", "name": "n"}
OTHERS: tuple[Step, ...] = (
    pod({}),
    pod({}, annotations={"a": ODD}, finalizers=["a.b/c"]),
    pod({"schedulingGates": [{"name": "g"}]}, labels={"a": "b"}),
    pod({"nodeName": "n"}),
    pod({}, labels={"a": "b", **dict.fromkeys(ZONE, "x")}),
    pod({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "k", "whenUnsatisfiable":
         "DoNotSchedule", "labelSelector": {"matchLabels": {"labels": "x"}}}]}, labels={"a": "b"}),
    pod({}, annotations={"labels": "{}"}),
    pod({"nodeSelector": {"nodeName": "n"}}),
    status(phase="Pending", message=ODD),
    status(nominatedNodeName="m"),
    status(conditions=[{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                        "message": ODD}]),
    status(conditions=[{"type": "PodScheduled", "status": "True"}, {"type": "Ready",
                                                                   "status": "False"}]),
    ("PATCH", POD, {"spec": {"schedulingGates": None}}, MERGE),
    ("DELETE", POD, {}, JSON),
    ("DELETE", POD, {"gracePeriodSeconds": 0}, JSON),
)  # fmt: skip
BINDINGS: tuple[Step, ...] = (
    bound({}, NODE), bound({}, NODE), bound({}, NODE), bound({"uid": "UID"}, NODE),
    bound({"namespace": "default", "uid": "UID"}, {**NODE, "apiVersion": "v1"}),
    bound({"uid": "other"}, NODE), bound({"resourceVersion": "-1"}, NODE),
    bound({"resourceVersion": "5"}, NODE), bound({"labels": {"x": "y"}}, NODE),
    bound({"annotations": {"x": ODD}}, NODE), bound({}, {**NODE, "name": "zoned"}),
    bound({}, {"name": "zoned"}), bound({}, {"name": 'a"\u00e4'}), bound({}, {"kind": "Node"}),
    bound({}, {"kind": "Pod", "name": "n"}), bound({"name": "q"}, NODE),
    bound({}, NODE, "?dryRun=All"), bound({"namespace": "other"}, NODE),
)  # fmt: skip
STEPS = st.lists(
    st.one_of(st.sampled_from(OTHERS), st.sampled_from(BINDINGS), st.sampled_from(BINDINGS[:5])),
    min_size=2,
    max_size=12,
)


def compare(asked: list[Step]) -> None:
    quick, plain = Server(decodes=False), Server(decodes=True)
    for at, step in enumerate(asked):
        for one in (quick, plain):
            one.now = NOW + at // 2
        assert quick.ask(*step) == plain.ask(*step)
    assert quick.content() == plain.content()


@settings(max_examples=examples(120), deadline=None)
@given(STEPS)
def test_pods_bound_as_bytes_are_as_decoded_ones(asked: list[Step]) -> None:
    compare(asked)


@pytest.mark.parametrize("before", OTHERS[:10])
@pytest.mark.parametrize("bound", BINDINGS)
def test_a_binding(before: Step, bound: Step) -> None:
    compare([*([] if before[0] == "POST" else [pod({})]), before, bound, BINDINGS[0]])


@pytest.mark.parametrize("at", range(3))
def test_keys_of_pods_that_cannot_be_bound_count(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong variants: a node, gates or a deletion do not count."""
    kept = binding._SPECIAL
    monkeypatch.setattr(binding, "_SPECIAL", (*kept[:at], *kept[at + 1 :]))
    known = [[pod({}), *BINDINGS[:2]], [OTHERS[2], BINDINGS[0]],
             [OTHERS[1], OTHERS[-2], BINDINGS[0]]]  # fmt: skip
    assert_caught(compare, STEPS, known=(known[at],))


@pytest.mark.parametrize(("before", "bound"), [(OTHERS[1], BINDINGS[4]), (OTHERS[5], BINDINGS[10])])
def test_pods_are_bound_as_bytes(
    before: Step, bound: Step, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = Server(decodes=False)
    one.ask(*before)

    def decoded(*_: object) -> None:
        raise AssertionError

    monkeypatch.setattr(one.server.writes, "rewrite", decoded)
    assert one.ask(*bound)[0] == 201


PODS = built_in_registry().by_path("pods")
BODY = '{"kind":"Binding","apiVersion":"v1","metadata":{"name":"p"},"target":{"name":"n"}}'
PARTS = ('"name":"p"', '"namespace":"a"', '"uid":"u"', '"uid":""', '"uid":null', '"labels":{}',
         '"kind":"Node"', '"apiVersion":"v1"', '"name":"\\u00e4\\"\\ud800"', '"name":"n"',
         '"fieldPath":"x"', '"uid":5', '"more":"x"')  # fmt: skip
HEADS = ('"kind":"Binding"', '"apiVersion":"v1"', '"kind":"Pod"', '"apiVersion":"v2"', '"more":1')


@st.composite
def bodies(draw: st.DrawFn) -> str:
    parts = st.lists(st.sampled_from(PARTS), max_size=4)
    heads = draw(st.lists(st.sampled_from(HEADS), min_size=2, max_size=3))
    for key in draw(st.permutations(("metadata", "target"))):
        heads.append(f'"{key}":{{{",".join(draw(parts))}}}')
    if draw(st.integers(0, 5)) == 0:
        heads.append('"metadata":{"name":"p"}')
    return f"{{{', '.join(draw(st.permutations(heads)))}}}"


def check_plain(text: str, read: Callable[[bytes], Tree | None] = plain_binding) -> None:
    assert PODS is not None
    schema, kind, version = binding.BINDING_SUBRESOURCE.body_schema(PODS)
    registry, raw = built_in_registry(), text.encode()
    found = read(raw)
    if found is None:
        return
    try:
        tree, warned = decode_kind(raw, JSON, PODS, schema, registry, "Warn", kind, version)
    except ApiError as error:
        raise AssertionError(error.message) from None
    # Webhooks are sent the keys in this order.
    assert (json.dumps(found), []) == (json.dumps(tree), warned)


@settings(max_examples=examples(300))
@given(bodies())
def test_plain_bodies_are_read_as_by_the_schema(text: str) -> None:
    check_plain(text)


def test_usual_bodies_are_plain() -> None:
    assert plain_binding(BODY.encode()) == json.loads(BODY)


def test_repeated_keys_count() -> None:
    """A wrong variant: the last of several equal keys is taken."""

    def check(text: str) -> None:
        check_plain(text, lambda raw: plain_binding(json.dumps(json.loads(raw)).encode()))

    twice = BODY.replace('"name":"n"', '"name":"m","name":"n"')
    assert_caught(check, bodies(), known=(twice,))
