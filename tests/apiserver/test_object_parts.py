"""Updates of objects whose managedFields are kept apart are as those of whole objects."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apis.protobuf.object_codec import object_codec
from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.apply import typed_comparison
from stowplan.apiserver.http import body_decoding
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.server import ApiServer
from stowplan.apiserver.storage import entry_patterns, object_parts
from stowplan.apiserver.storage.entry_forms import EntryForm, EntryOrder
from stowplan.apiserver.storage.entry_patterns import (
    FORM_USES_MIN,
    MARK,
    ChangedEntries,
    EntriesText,
    Key,
    KnownEntries,
    Skeleton,
    order_of,
    outcome_of,
    without_known,
)
from stowplan.apiserver.storage.object_parts import ObjectParts, StoredParts, stored_parts
from stowplan.objects.encoding.tree import Tree
from tests.apiserver.whole_server import NOW
from tests.property.wrong import assert_caught
from tests.soak import examples

JSON, MERGE = "application/json", "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
PROTOBUF = "application/vnd.kubernetes.protobuf"
OPERATIONS, APPLY = "application/json-patch+json", "application/apply-patch+yaml"
SPACE = "/api/v1/namespaces/default"
PODS, MAPS = f"{SPACE}/pods", f"{SPACE}/configmaps"
DEPLOYMENTS = "/apis/apps/v1/namespaces/default/deployments"
ODD = 'a]},"b'
"""A key whose path element looks like the end of managedFields."""
CONTAINER = {"name": "c", "image": "x:1", "ports": [{"containerPort": 80}]}
ALIAS = {"ip": "10.0.0.1", "hostnames": ["h"]}
Step = tuple[str, str, Any, str, str]
"""Method, path, body (of a PUT: what is merged into the object as it is), media type, agent."""


@pytest.fixture(autouse=True, scope="module")
def entries_in_other_forms() -> Iterator[None]:
    """Forms are made of entries that came back once."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(entry_patterns, "FORM_USES_MIN", 1)
        yield


class Server:
    """parts: managedFields are kept apart."""

    def __init__(self, *, parts: bool) -> None:
        options = ApiServerOptions(registry=built_in_registry(), admission=default_admission())
        self.server = ApiServer(options, np.random.default_rng(7))
        self.server.writes.parted._is_on = parts
        self.now = NOW
        self.ask(("POST", "/api/v1/namespaces", {"metadata": {"name": "default"}}, JSON, ""))
        template = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [CONTAINER]}}
        labels = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
        for path, body in (
            (PODS, {"spec": {"containers": [CONTAINER], "hostAliases": [ALIAS]}}),
            (MAPS, {"data": {"k": "v"}}),
            (DEPLOYMENTS, {"spec": labels}),
        ):
            body["metadata"] = {"name": "o", "annotations": {ODD.replace(']},"', "-"): ODD}}
            self.ask(("POST", path, body, JSON, "a/1"))

    def ask(self, step: Step) -> tuple[int, Tree, object]:
        method, path, body, media, agent = step
        if method == "PUT":
            found = json.loads(self._sent("GET", path.split("?")[0], b"", JSON, agent).body)
            body = merged(found, body)
        # Clients in Go put no space there, others do; those without types sort keys.
        separators = (", ", ": ") if agent == "a/1" else (",", ":")
        is_sorted = method == "PUT" and agent == "c/1"
        raw = json.dumps(body, separators=separators, sort_keys=is_sorted).encode()
        if media == PROTOBUF:
            raw = object_codec().encode(body)
        made = self._sent(method, path, raw, media, agent)
        # What a dry run answers is encoded in the order in which it was put together.
        return made.status, json.loads(made.body), made.headers

    def _sent(self, method: str, path: str, raw: bytes, media: str, agent: str) -> HttpResponse:
        path, _, query = path.partition("?")
        pairs = tuple((a, b) for a, _, b in (one.partition("=") for one in query.split("&") if one))
        headers = {"content-type": media, "accept": JSON, "user-agent": agent}
        made = self.server.handle(HttpRequest(method, path, pairs, headers, raw), self.now)
        assert isinstance(made, HttpResponse)
        self.server.tick(self.now)
        return made

    def content(self) -> list[Any]:
        return sorted(self.server.store.records())


def merged(tree: Any, patch: Any) -> Any:
    if not isinstance(patch, dict) or not isinstance(tree, dict):
        return patch
    made = dict(tree)
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merged(made.get(key), value)
    return made


ENTRY = {
    "manager": "m", "operation": "Update", "apiVersion": "v1", "time": "2020-01-01T00:00:00Z",
    "fieldsType": "FieldsV1", "fieldsV1": {"f:metadata": {"f:labels": {"f:x": {}}}},
}  # fmt: skip
META: tuple[Tree, ...] = (
    {"labels": {"x": "1"}},
    {"labels": {"x": "2", "y": "1"}},
    {"labels": {"x": None}},
    {"annotations": {"n": ODD}},
    {"finalizers": ["a.b/c"]},
    {},
)
SENT = (None, None, None, [], [{}], [ENTRY], [{**ENTRY, "fieldsV1": {"f:data": {ODD: {}}}}], 5,
        [{**ENTRY, "operation": "Wrong"}], [{**ENTRY, "more": 1}])  # fmt: skip
CHANGES: tuple[Tree, ...] = (
    {"spec": {"activeDeadlineSeconds": 5}},
    {"data": {"k": "w"}},
    {"data": {ODD: "w", "z": None}},
    {"spec": {"replicas": 2}},
    {"spec": {"template": {"metadata": {"managedFields": [ENTRY], "labels": {"a": "b"}}}}},
    {"spec": {"wrong": 1}},
    {"spec": {"containers": 5}},
    {"status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}},
    {"status": {"phase": "Pending", "conditions": [{"type": "Ready", "status": "False"}]}},
    {},
)
IPS = "10.0.0.1", "10.0.0.12", "fd00::1"


def addresses(*ips: str, host: str = "") -> Tree:
    """The status of a pod with addresses."""
    status: Tree = {"podIP": ips[0], "podIPs": [{"ip": one} for one in ips]}
    return {"status": {**status, "hostIP": host, "hostIPs": [{"ip": host}]} if host else status}


ADDRESSES = (
    *(addresses(one) for one in IPS), addresses(*IPS[:2]), addresses(*IPS[1:]),
    addresses(IPS[2], host=IPS[0]), addresses(IPS[1], IPS[0], host=IPS[1]),
    {"status": {"podIPs": None, "message": f'"{IPS[0]}" "~0"'}},
    {"status": {"podIPs": [{"ip": "none"}, {"ip": ""}], "podIP": "~0"}},
)  # fmt: skip


@st.composite
def steps(draw: st.DrawFn) -> Step:
    place = draw(st.sampled_from((PODS, PODS, MAPS, DEPLOYMENTS)))
    path = f"{place}/o"
    if draw(st.integers(0, 3)) == 0 and place != MAPS:
        path += "/status"
    agent = draw(st.sampled_from(("a/1", "b/1", "c/1")))
    meta = dict(draw(st.sampled_from(META)))
    changes = CHANGES if draw(st.booleans()) else ADDRESSES
    body = {**draw(st.sampled_from(changes)), "metadata": meta}
    method, media = draw(st.sampled_from((
        ("PUT", JSON), ("PUT", JSON), ("PATCH", MERGE), ("PATCH", STRATEGIC), ("PATCH", OPERATIONS),
        ("PATCH", APPLY),
    )))  # fmt: skip
    if draw(st.integers(0, 7)) == 0:
        path += "?dryRun=All"
    if media == APPLY:
        body["apiVersion"], body["kind"] = KINDS[place]
        joint = "&" if "?" in path else "?"
        return method, f"{path}{joint}fieldManager={agent[0]}&force=true", body, media, agent
    if media == OPERATIONS:
        where = draw(st.sampled_from(("/metadata/labels", "/metadata/managedFields")))
        value: Any = meta.get("labels") or {} if "labels" in where else []
        return method, path, [{"op": "add", "path": where, "value": value}], media, agent
    sent = draw(st.sampled_from(SENT))
    if sent is not None:
        meta["managedFields"] = sent
    elif draw(st.integers(0, 5)) == 0:
        meta["managedFields"] = None
    return method, path, body, media, agent


KINDS = {
    PODS: ("v1", "Pod"), MAPS: ("v1", "ConfigMap"), DEPLOYMENTS: ("apps/v1", "Deployment"),
}  # fmt: skip
STEPS = st.lists(steps(), min_size=1, max_size=8)


def compare(asked: list[Step]) -> None:
    apart, whole = Server(parts=True), Server(parts=False)
    for at, step in enumerate(asked):
        for one in (apart, whole):
            one.now = NOW + at // 2
        assert apart.ask(step) == whole.ask(step)
    assert apart.content() == whole.content()


@settings(max_examples=examples(120), deadline=None)
@given(STEPS)
def test_objects_in_parts_are_as_whole_ones(asked: list[Step]) -> None:
    compare(asked)


def status(phase: str, agent: str = "a/1") -> Step:
    return ("PATCH", f"{PODS}/o/status", {"status": {"phase": phase}}, STRATEGIC, agent)


def replaced(labels: Tree, agent: str = "b/1", **meta: Any) -> Step:
    return ("PUT", f"{PODS}/o", {"metadata": {"labels": labels, **meta}}, JSON, agent)


def addressed(*ips: str, agent: str = "a/1", query: str = "") -> Step:
    return ("PATCH", f"{PODS}/o/status{query}", addresses(*ips), MERGE, agent)


SEQUENCE = [
    status("Running"), replaced({"x": "1"}), replaced({"x": "2"}, "c/1"), replaced({"x": None}),
    replaced({"y": "1"}, managedFields=[ENTRY]), status("Pending", "c/1"), replaced({"x": "1"}),
]  # fmt: skip


def test_a_sequence() -> None:
    compare(SEQUENCE)


def sequence_of_addresses() -> list[Step]:
    of = [("PATCH", f"{PODS}/o/status", body, MERGE, f"{'abc'[at % 3]}/1")
          for at, body in enumerate(ADDRESSES * 2)]  # fmt: skip
    one, other, third = (addressed(one, agent="d/1") for one in IPS)
    back: Step = ("PATCH", f"{PODS}/o/status", {"status": {"podIPs": None}}, MERGE, "d/1")
    return [*of, *(step for one in (one, other, third, one) for step in (one, back))]


def test_a_sequence_in_protobuf() -> None:
    asked = [replaced({"x": str(at // 2)}, f"{'abc'[at % 3]}/1") for at in range(8)]
    compare([(*one[:3], PROTOBUF, one[4]) for one in asked])


def test_a_sequence_of_addresses() -> None:
    compare(sequence_of_addresses())


def test_addresses_that_are_taken_for_each_other_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrong variant: all addresses have the same mark."""
    marked = typed_comparison._with_marks

    def careless(one: bytes, other: bytes) -> tuple[bytes, bytes, list[bytes]]:
        one, other, own = marked(one, other)
        for at in range(1, len(own)):
            one, other = (each.replace(b'"~%d"' % at, b'"~0"') for each in (one, other))
        return one, other, own

    monkeypatch.setattr(typed_comparison, "_with_marks", careless)
    # One of each family, then the same in turn, then two others.
    one, other = IPS[1:]
    bodies = (addresses(one, other), addresses(other, one), addresses(IPS[0], "fd00::2"))
    asked: list[Step] = [
        ("PATCH", f"{PODS}/o/status?dryRun=All", bodies[at], MERGE, "a/1") for at in (1, 1, 2, 2)
    ]
    begun: Step = ("PATCH", f"{PODS}/o/status", bodies[0], MERGE, "a/1")
    assert_caught(compare, STEPS, known=([begun, *asked],))


def test_parts_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Server(parts=True)
    used: list[bool] = []
    begin = one.server.writes.parted.begin

    def noted(*given: Any) -> Any:
        parts = begin(*given)
        used.append(parts is not None)
        return parts

    monkeypatch.setattr(one.server.writes.parted, "begin", noted)
    for step in SEQUENCE[:4]:
        assert one.ask(step)[0] == 200
    assert used == [True] * 4


def test_entries_that_are_taken_for_those_of_an_earlier_write_are_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A wrong variant: entries of the last write count without a look at the object."""

    def careless(
        value: bytes, known: KnownEntries, likely: EntriesText | None = None
    ) -> StoredParts | None:
        parts = stored_parts(value, known)
        return parts if parts is None or likely is None else StoredParts(parts.bare, likely)

    monkeypatch.setattr(object_parts, "stored_parts", careless)
    tried: Step = (
        "PATCH", f"{PODS}/o?dryRun=All", {"metadata": {"labels": {"x": "1"}}}, MERGE, "b/1",
    )  # fmt: skip
    assert_caught(compare, STEPS, known=([*[tried] * 4, status("Running", "c/1")],))


def test_entries_of_the_last_write_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Server(parts=True)
    for at in range(6):
        assert one.ask(replaced({"x": str(at)}))[0] == 200

    def fail(*given: Any) -> None:
        raise AssertionError("split again")

    monkeypatch.setattr(KnownEntries, "of_text", fail)
    assert one.ask(replaced({"x": "9"}))[0] == 200


def test_entries_are_cut_out_where_they_are() -> None:
    one = Server(parts=True)
    value = one.server.store.get("pods/default/o")
    assert value is not None
    parts = stored_parts(value, KnownEntries())
    assert parts is not None
    tree = json.loads(value)
    entries = tree["metadata"].pop("managedFields")
    assert (json.loads(parts.bare), json.loads(parts.entries.text)) == (tree, entries)
    below = b'{"kind":"A","apiVersion":"v1","metadata":{"name":"a"},"spec":{"metadata":{"b":1,%b}}}'
    assert (
        stored_parts(below % (b'"managedFields":%b' % parts.entries.text), KnownEntries()) is None
    )


def test_sent_entries_that_are_dropped_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variant: managedFields that are sent do not count."""

    def careless(tree: Any, known: bytes) -> None:
        (tree.get("metadata") or {}).pop("managedFields", None)

    monkeypatch.setattr(body_decoding, "drop_known", careless)
    assert_caught(compare, STEPS, known=(SEQUENCE,))


@pytest.mark.parametrize("left_out", range(6))
def test_an_outcome_of_another_change_is_found(
    left_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wrong variants: what is worked out counts for another endpoint, manager, change, order of
    times, other entries, or other equal addresses."""
    outcome, keep = KnownEntries.outcome, KnownEntries.keep

    def without(key: Key) -> Key:
        return (*key[:left_out], *key[left_out + 1 :])

    def careless_outcome(self: KnownEntries, key: Key) -> ChangedEntries | None:
        return outcome(self, without(key))

    def careless_keep(self: KnownEntries, key: Key, found: ChangedEntries) -> None:
        keep(self, without(key), found)

    monkeypatch.setattr(KnownEntries, "outcome", careless_outcome)
    monkeypatch.setattr(KnownEntries, "keep", careless_keep)
    # Of one and the same object: what is left out must be all that differs.
    maps, same = f"{MAPS}/o?dryRun=All", {"metadata": {"labels": {"x": "1"}}}
    asked: list[Step] = [
        ("PATCH", maps, {"data": {"k": "w"}}, MERGE, "b/1"),
        ("PATCH", maps, {"data": {"k": None}}, MERGE, "b/1"),
        ("PATCH", maps, {"data": {"l": "w"}}, MERGE, "b/1"),
        ("PATCH", maps, {"data": {"l": "w"}}, MERGE, "c/1"),
        ("PATCH", maps, {"metadata": {"annotations": None}}, MERGE, "b/1"),
        ("PATCH", f"{PODS}/o?dryRun=All", same, MERGE, "c/1"),
        ("PATCH", f"{PODS}/o/status?dryRun=All", same, MERGE, "c/1"),
        ("PATCH", f"{PODS}/o?dryRun=All", same, MERGE, "c/1"),
        replaced({"x": "1"}), ("PATCH", f"{PODS}/o?dryRun=All", same, MERGE, "c/1"),
    ]  # fmt: skip
    # Entries of the same time are in the order of their managers.
    # The second update of entries is kept.
    first: Step = ("PATCH", maps, same, MERGE, "A/1")
    last: Step = ("PATCH", f"{MAPS}/o", same, MERGE, "a/1")
    again = asked[2]
    asked = [asked[0], first, first, *asked, again, last, again, again]
    # The pod has the address of its alias, then another one.
    labelled: Step = ("PATCH", f"{PODS}/o?dryRun=All", {"metadata": {"labels": {"z": "1"}}}, MERGE,
                      "c/1")  # fmt: skip
    for ip in IPS[:2]:
        asked += [("PATCH", f"{PODS}/o/status", addresses(ip), MERGE, "a/1"), *[labelled] * 4]
    assert_caught(compare, STEPS, known=(asked,))


def test_outcomes_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Server(parts=True)

    def fail(*given: Any) -> None:
        raise AssertionError("worked out again")

    meta = {"annotations": {ODD.replace(']},"', "-"): ODD}}
    steps_of_addresses = [addressed("10.0.0.1"), replaced({"x": "1"}), addressed("10.0.0.1", "::1")]
    for at, name in enumerate("orqp"):
        if name != "o":
            spec = {"containers": [CONTAINER], "hostAliases": [ALIAS]}
            pod = {"spec": spec, "metadata": {"name": name, **meta}}
            assert one.ask(("POST", PODS, pod, JSON, "a/1"))[0] == 201
        if name == "p":
            monkeypatch.setattr(ObjectParts, "_work_out", fail)
        for method, path, body, media, agent in (*SEQUENCE[:4], *steps_of_addresses):
            one.now += 1 + at
            body = json.loads(json.dumps(body).replace("10.0.0.1", f"10.{at}.0.1{at}"))
            asked = (method, path.replace("/o", f"/{name}"), body, media, agent)
            assert one.ask(asked)[0] == 200


def entries_of(*times: str) -> EntriesText:
    made = [{**ENTRY, "time": time, "manager": f"m{at}"} for at, time in enumerate(times)]
    return KnownEntries().of_text(json.dumps(made, separators=(",", ":")).encode())


TIMES = st.lists(st.sampled_from([b"2020-01-01T00:00:0%dZ" % at for at in range(4)]), min_size=1)


@given(TIMES, TIMES)
def test_other_orders_are_others(one: list[bytes], other: list[bytes]) -> None:
    pairs = [(a, b) for a in range(len(one)) for b in range(len(one))]
    is_same = len(one) == len(other) and all(
        (one[a] < one[b], one[a] == one[b]) == (other[a] < other[b], other[a] == other[b])
        for a, b in pairs
    )
    if len(one) == len(other):
        assert (order_of(tuple(one)) == order_of(tuple(other))) == is_same


def test_times_are_filled_in() -> None:
    known = entries_of("2020-01-01T00:00:00Z", "2020-01-01T00:00:01Z")
    now = b"2020-01-01T00:00:02Z"
    made = outcome_of(known.text, (0, 1), False, [*known.times, now], [])
    assert made is not None
    assert made.text((*known.times, now)) == known.text
    swapped = replace(made, places=(2, 0)).text((*known.times, now))
    assert [one.time for one in KnownEntries().of_text(swapped).entries()] == [
        now.decode(), known.times[0].decode(),
    ]  # fmt: skip
    assert outcome_of(known.text, (0,), False, [*known.times, now], []) is None


def test_addresses_are_filled_in() -> None:
    element = {'k:{"ip":"10.0.0.1"}': {}, 'k:{"ip":"fd00::1"}': {".": {}}, 'k:{"ip":"x"}': {}}
    entries = [{**ENTRY, "fieldsV1": {"f:ips": element}}, {**ENTRY, "fieldsV1": element}]
    known = KnownEntries().of_text(json.dumps(entries, separators=(",", ":")).encode())
    own = [b"10.0.0.1", b"fd00::1"]
    assert known.addresses == (*own, *own)
    times = [*known.times, b"now"]
    made = outcome_of(known.text, (0, -1), False, [*known.times[:1], known.times[1]], own)
    assert made is not None
    other = made.text((*known.times, b"10.0.0.2", b"::2"))
    assert other == known.text.replace(own[0], b"10.0.0.2").replace(own[1], b"::2")
    assert outcome_of(known.text, (0, 1), False, times, own[:1]) is None
    again = KnownEntries()
    skeletons = [again.of_text(text).skeleton for text in (known.text, other)]
    assert skeletons[0] is skeletons[1]
    spaced = skeletons[1].ordered(known.times, [b"10.0.0.2", b"::2"] * 2)
    form = EntryForm(EntryOrder.STORED, True)
    assert skeletons[1].in_form(spaced, form) == b" " + json.dumps(json.loads(other)).encode()


YEAR, DAY = "20", "01-01T00:00:00Z"


@st.composite
def texts(draw: st.DrawFn) -> bytes:
    """Entries, many of which are as long as others."""
    made = []
    for _ in range(draw(st.integers(1, 2))):
        elements = draw(
            st.lists(st.sampled_from(("1.1.1.1", "1.1.1.2", "fd::1", "x", "")), max_size=2)
        )
        made.append({
            **ENTRY,
            "manager": draw(st.sampled_from(("a", "b", "%b", "%%", ""))),
            "time": draw(st.sampled_from((f"{YEAR}20-{DAY}", f"{YEAR}21-{DAY}", "no", DAY))),
            "fieldsV1": {"f:ips": {f'k:{{"ip":"{one}"}}': {} for one in elements}},
        })  # fmt: skip
    return json.dumps(made, separators=(",", ":")).encode()


def compare_split(one: bytes, other: bytes) -> None:
    """Entries that are split as those before them are as those that are split alone."""
    known = KnownEntries()
    known.of_text(one)
    found, alone = known.of_text(other), KnownEntries().of_text(other)
    assert (found.times, found.addresses, found.values) == (
        alone.times, alone.addresses, alone.values,
    )  # fmt: skip
    assert found.skeleton.pattern % found.values == other == found.text
    assert found.skeleton.pattern == alone.skeleton.pattern
    assert found.skeleton.is_plain == alone.skeleton.is_plain
    again = alone.skeleton.split(other, alone.values)
    assert (again.text, again.times, again.addresses) == (other, alone.times, alone.addresses)


@settings(max_examples=examples(300))
@given(texts(), texts())
def test_entries_are_split_as_those_before_them(one: bytes, other: bytes) -> None:
    compare_split(one, other)


def test_entries_split_at_places_of_others_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong variant: entries of the same length are taken for alike."""

    def careless(self: Skeleton, text: bytes) -> EntriesText | None:
        if self._cut is None:
            return None
        values = self._cut(text)[1::2]
        at = self._address
        left = values if at < 0 else values[:at] + values[at + 1 :]
        own = () if at < 0 else (values[at],)
        return EntriesText(text, self, left, own, values)

    monkeypatch.setattr(Skeleton, "read", careless)
    assert_caught(compare_split, texts(), texts())


def test_entries_with_other_times_and_addresses_are_split_at_known_places(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    times = "2020-01-01T00:00:00Z", "2020-01-01T00:00:01Z"
    text = entries_of(*times).text.replace(b'"f:x"', b'"k:{\\"ip\\":\\"1.1.1.1\\"}"', 1)
    assert b"1.1.1.1" in text
    known = KnownEntries()
    first = known.of_text(text)

    def fail(*given: Any) -> None:
        raise AssertionError("searched for times and addresses")

    monkeypatch.setattr(KnownEntries, "_read", fail)
    again = known.of_text(text.replace(b"1.1.1.1", b"2.2.2.2").replace(b"00:01Z", b"10:03Z"))
    assert again.skeleton is first.skeleton
    assert again.addresses == (b"2.2.2.2",)
    assert again.times == (times[0].encode(), b"2020-01-01T00:10:03Z")


@pytest.mark.parametrize("separators", [(",", ":"), (", ", ": ")])
def test_entries_of_a_body_are_not_decoded(separators: tuple[str, str]) -> None:
    known = entries_of("2020-01-01T00:00:00Z", "2020-01-01T00:00:01Z")
    entries = json.loads(known.text)
    known.skeleton.uses = FORM_USES_MIN

    def rest(body: Tree | bytes) -> Any:
        raw = body if isinstance(body, bytes) else json.dumps(body, separators=separators).encode()
        return body_decoding._decode_rest(raw, known)

    good: Tree = {"metadata": {"name": "a", "managedFields": entries}, "data": {"a": "b"}}
    assert rest(good) == ({"metadata": {"name": "a"}, "data": {"a": "b"}}, [])
    # Nothing but the stored ones is left out, and nothing elsewhere.
    assert rest({"metadata": {"managedFields": [*entries, ENTRY]}}) is None
    assert rest({"metadata": {"managedFields": entries[:1]}}) is None
    assert rest({"spec": {"managedFields": entries}, "metadata": {"name": "a"}}) is None
    for mark in (MARK, float(MARK), str(MARK)):
        other = {"spec": {"managedFields": entries}, "metadata": {"managedFields": mark}}
        assert rest(other) is None
    assert rest({"spec": {'x"managedFields': entries}, "metadata": {}}) is None
    twice = b'{"metadata":{"managedFields":%b,"managedFields":[]}}' % known.text
    assert rest(twice) is None
    assert rest(b'{"metadata":{"managedFields":%b' % known.text) is None
    assert without_known(twice, known) is not None
