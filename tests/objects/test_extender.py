"""Extenders: whom they are asked about, what they are sent, and what their answers come to."""

from __future__ import annotations

import json

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.messages.extender_api import (
    ExtenderArgs,
    ExtenderPreemptionArgs,
    ExtenderRequest,
    ExtenderResponse,
    ExtenderVerb,
    HTTPExtender,
    Victims,
    body_tree,
    encode_body,
    in_call_order,
    read_binding_result,
    read_filter_result,
    read_preemption_result,
    read_priorities,
    redact_password,
    timeout_response,
)
from stowplan.objects.encoding.go_json import GoDecodeError
from stowplan.objects.pod import Pod
from stowplan.testing import node, pod

FILTER = HTTPExtender(0, "http://fit/", {ExtenderVerb.FILTER: "sieve"})
WEB = pod("web", cpu="1")


def asked(verb: ExtenderVerb = ExtenderVerb.FILTER, url: str = "http://fit") -> ExtenderRequest:
    return ExtenderRequest(HTTPExtender(0, url, {verb: verb.value}), verb, ExtenderArgs(WEB))


@pytest.mark.parametrize(
    ("prefix", "path", "url"),
    [
        ("http://fit", "filter", "http://fit/filter"),
        ("http://fit/a//", "v1/filter?x=1", "http://fit/a/v1/filter?x=1"),
        ("http://fit/a", "/filter", "http://fit/a//filter"),
    ],
)
def test_where_a_call_goes(prefix: str, path: str, url: str) -> None:
    assert HTTPExtender(0, prefix, {ExtenderVerb.FILTER: path}).url(ExtenderVerb.FILTER) == url


@pytest.mark.parametrize(
    ("url", "printed"),
    [
        ("http://fit/x", "http://fit/x"),
        ("https://me:secret@fit:80/x", "https://me:***@fit:80/x"),
        ("https://me@fit/x", "https://me@fit/x"),
        ("http://fit/a:b@c", "http://fit/a:b@c"),
    ],
)
def test_passwords_are_never_printed(url: str, printed: str) -> None:
    assert redact_password(url) == printed
    question = asked(url=url)
    assert "secret" not in timeout_response(question).reason
    assert "secret" not in str(read_filter_result(question, ExtenderResponse(500)))


def test_those_that_may_fail_are_asked_last() -> None:
    a, b, c = (HTTPExtender(i, "u", ignorable=i == 0) for i in range(3))
    assert in_call_order((a, b, c)) == (b, c, a)


def test_an_extender_is_interested_in_who_names_its_resources() -> None:
    gpu = HTTPExtender(0, "u", managed_resources=frozenset({"example.com/gpu"}))
    assert FILTER.is_interested(WEB)
    assert not gpu.is_interested(WEB)
    assert gpu.is_interested(pod("a", resources={"example.com/gpu": "0"}))


# Bodies.


def test_a_body_has_one_of_the_two_lists() -> None:
    n1 = node("n1", cpu="4")
    whole = body_tree(ExtenderArgs(WEB, (n1,)))
    assert list(whole) == ["Pod", "Nodes", "NodeNames"]
    assert whole["NodeNames"] is None
    assert whole["Nodes"]["metadata"] == {}
    (item,) = whole["Nodes"]["items"]
    assert item["metadata"]["name"] == "n1"
    assert item["status"]["daemonEndpoints"] == {"kubeletEndpoint": {"Port": 0}}
    named = json.loads(encode_body(ExtenderArgs(WEB, None, ("n1", "n1"))))
    assert (named["Nodes"], named["NodeNames"]) == (None, ["n1", "n1"])


def test_objects_are_sent_as_the_api_server_spells_them() -> None:
    def encoded(value: object) -> dict[str, object]:
        meta = {"name": "x", "managedFields": [1]}
        return {"kind": "K", "apiVersion": "v1", "metadata": meta, "extra": 1}

    tree = body_tree(ExtenderArgs(WEB, (node("n1"), {"kind": "Node", "metadata": None})), encoded)
    assert tree["Pod"] == {"metadata": {"name": "x"}, "extra": 1}
    first, second = tree["Nodes"]["items"]
    assert first["metadata"]["managedFields"] == [1]
    assert "kind" not in first
    # What an extender has returned goes on as it is.
    assert (second["kind"], second["metadata"], second["spec"]) == ("Node", {}, {})


@pytest.mark.parametrize("is_meta", [False, True])
def test_victims_are_sent_whole_or_by_uid(is_meta: bool) -> None:
    low: Pod = pod("low", uid="u1")
    body = ExtenderPreemptionArgs(WEB, {"n1": Victims((low,), 2)}, is_meta)
    tree = body_tree(body)
    printed, other = tree["NodeNameToMetaVictims"], tree["NodeNameToVictims"]
    printed, other = (printed, other) if is_meta else (other, printed)
    assert other is None
    assert printed["n1"]["NumPDBViolations"] == 2
    (victim,) = printed["n1"]["Pods"]
    assert victim == {"UID": "u1"} if is_meta else victim["metadata"]["uid"] == "u1"


# Answers.


@pytest.mark.parametrize(
    ("reply", "text"),
    [
        (ExtenderResponse(reason="no route"), "no route"),
        (
            ExtenderResponse(404, b"{}"),
            "failed filter with extender at URL http://fit/filter, code 404",
        ),
        (ExtenderResponse(200, b'{"Error": "no", "NodeNames": ["n1"]}'), "no"),
        (ExtenderResponse(200, b""), "EOF"),
    ],
)
def test_what_counts_as_failure(reply: ExtenderResponse, text: str) -> None:
    assert read_filter_result(asked(), reply) == GoDecodeError(text)


def test_a_preemption_has_no_error() -> None:
    assert (
        read_preemption_result(
            asked(ExtenderVerb.PREEMPT), ExtenderResponse(200, b'{"Error": "no"}')
        )
        == {}
    )


def test_entries_without_a_value_have_none() -> None:
    found = read_priorities(
        asked(ExtenderVerb.PRIORITIZE), ExtenderResponse(200, b'[null, {"Score": 3}]')
    )
    assert not isinstance(found, GoDecodeError)
    assert [(one.host, one.score) for one in found] == [("", 0), ("", 3)]
    body = b'{"NodeNameToMetaVictims": {"n1": null, "n2": {"Pods": [null]}}}'
    victims = read_preemption_result(asked(ExtenderVerb.PREEMPT), ExtenderResponse(200, body))
    assert not isinstance(victims, GoDecodeError)
    assert (victims["n1"].uids, victims["n2"].uids) == ((), ("",))
    assert read_binding_result(asked(ExtenderVerb.BIND), ExtenderResponse(200, b"null")) is None


# Answers that are read at once, and with patience.

KEYS = ("NodeNames", "nodeNames", "Nodes", "FailedNodes", "failednodes", "Error", "error", "Other")
NAMES = st.sampled_from(("n1", "n2", ""))
NUMBERS = st.sampled_from(
    (0, 7, -3, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, 1.5, 2.0, 1e3, True, None, "3")
)
VALUES = st.one_of(
    st.none(),
    st.lists(NAMES | st.none(), max_size=2),
    st.dictionaries(NAMES, NAMES | st.none(), max_size=2),
    st.just({"items": [{"metadata": {"name": "n1"}}]}),
    st.just({"items": None, "kind": "List"}),
    NAMES,
)
FILTERED = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=3)
ENTRIES = st.dictionaries(st.sampled_from(("Host", "host", "Score", "x")), NAMES | NUMBERS)
PRIORITIES = st.lists(ENTRIES | st.fixed_dictionaries({"Host": NAMES, "Score": NUMBERS}))


class Never:
    """A decoder that takes nothing."""

    def decode(self, body: bytes) -> None:
        raise msgspec.DecodeError("too hasty")


def haste_reads_the_same(answer: object, tail: str) -> None:
    """What is read at once is what is read with patience."""
    reply = ExtenderResponse(200, (json.dumps(answer) + tail).encode())
    found = [
        read_filter_result(asked(), reply),
        read_priorities(asked(ExtenderVerb.PRIORITIZE), reply),
    ]
    with pytest.MonkeyPatch.context() as patch:
        for name in ("_exact_filter", "_exact_priorities"):
            patch.setattr(f"stowplan.messages.extender_api.{name}", Never())
        slow = [
            read_filter_result(asked(), reply),
            read_priorities(asked(ExtenderVerb.PRIORITIZE), reply),
        ]
    assert found == slow


ANSWERS = FILTERED | PRIORITIES
TAILS = st.sampled_from(("", " ", "\n", "x", "}"))


@given(ANSWERS, TAILS)
def test_haste_reads_the_same(answer: object, tail: str) -> None:
    haste_reads_the_same(answer, tail)


def test_control_keys_that_haste_passes_over_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loose(msgspec.Struct, rename="pascal"):
        """Wrong: keys in another case are passed over."""

        node_names: list[str] | None = None
        nodes: None = None
        failed_nodes: dict[str, str] | None = None
        failed_and_unresolvable_nodes: dict[str, str] | None = None
        error: str = ""

    name = "stowplan.messages.extender_api._exact_filter"
    monkeypatch.setattr(name, msgspec.json.Decoder(Loose))
    with pytest.raises(AssertionError):
        haste_reads_the_same({"nodeNames": ["n1"]}, "")
