"""What single requests did to the server when it was attacked, each with what they may do now."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from stowplan.apis.machinery.access import Attributes
from stowplan.apis.machinery.errors import CAUSES_BYTES_MAX, CAUSES_MAX, MORE_CAUSES, ApiError
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User
from stowplan.apis.machinery.strconv import NumError, parse_int, parse_uint, saturated_int
from stowplan.apis.machinery.text_cache import TEXT_MAX, cache_short_texts
from stowplan.apis.schema import canonical_quantity
from stowplan.apis.schema.internal_form import internal_diff
from stowplan.apis.schema.json_parser import LONG_BYTES, InvalidJson, check_extent, parse_json
from stowplan.apiserver.auth import rbac
from stowplan.apiserver.crd.jsonpath import VALUES_MAX as PLACES_MAX
from stowplan.apiserver.crd.jsonpath import JsonPath
from stowplan.apiserver.crd.structural_schema import (
    DEFAULTING_STEPS_MAX,
    DefaultingBudget,
    TooManyDefaults,
    set_defaults,
)
from stowplan.apiserver.crd.value_validation import ValueValidator
from stowplan.apiserver.http import body_decoding
from stowplan.apiserver.http.deferred_work import PendingRequest
from stowplan.apiserver.http.warnings import ITEM_MAX, TOTAL_MAX, WarningList
from stowplan.apiserver.patch import strategic_merge
from tests.apiserver.test_protobuf import envelope, message
from tests.contract.apiserver.recorded_server import RestartableCluster

parsing = sys.modules[parse_json.__module__]
"""The module, whose package has a function of that name."""
NOW = 1_790_000_000.0
DIGITS = "9" * 5000
SPACE = "/api/v1/namespaces/default"
ADMIN = {"authorization": "Bearer admin-token"}
LOW = {"authorization": "Bearer reader-token"}


@pytest.fixture
def cluster() -> RestartableCluster:
    return RestartableCluster("plain", NOW)


def asked(
    cluster: RestartableCluster,
    method: str,
    path: str,
    body: Any = b"",
    media: str = "application/json",
    headers: dict[str, str] = ADMIN,
    query: tuple[tuple[str, str], ...] = (),
) -> HttpResponse:
    """The answer to a request."""
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    given = {**headers, "content-type": media}
    answer = cluster.handle(HttpRequest(method, path, query, given, raw), NOW)
    assert isinstance(answer, HttpResponse)
    return answer


# Before and beside the work


@pytest.mark.parametrize("headers", [LOW, {}, {"authorization": "Bearer nobody"}])
@pytest.mark.parametrize(
    ("media", "body"),
    [
        ("application/json", b"[" * 100_000),
        ("application/yaml", b"- " * 30_000),
        (
            "application/vnd.kubernetes.protobuf",
            envelope("v1", "ConfigMap", message((1, message((1, "x"))))),
        ),
    ],
)
def test_nothing_is_parsed_before_a_request_is_authorized(
    cluster: RestartableCluster,
    monkeypatch: pytest.MonkeyPatch,
    headers: dict[str, str],
    media: str,
    body: bytes,
) -> None:
    def parsed(*_: Any) -> Any:
        raise AssertionError("a body was parsed")

    for name in ("parse_json", "read_yaml", "object_codec"):
        monkeypatch.setattr(body_decoding, name, parsed)
    assert asked(cluster, "POST", f"{SPACE}/configmaps", body, media, headers).status in (401, 403)
    with pytest.raises(AssertionError, match="a body was parsed"):
        asked(cluster, "POST", f"{SPACE}/configmaps", body, media)


def config_map(name: str, length: int) -> bytes:
    return json.dumps({"metadata": {"name": name}, "data": {"a": "x" * length}}).encode()


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_a_long_body_is_handed_out_to_be_read(cluster: RestartableCluster, method: str) -> None:
    path = f"{SPACE}/configmaps"
    if method != "POST":
        asked(cluster, "POST", path, config_map("x", 1))
        path += "/x"
    media = "application/merge-patch+json" if method == "PATCH" else "application/json"
    headers = {**ADMIN, "content-type": media}
    begun = cluster.server.begin(
        HttpRequest(method, path, (), headers, config_map("x", LONG_BYTES)), NOW
    )
    assert isinstance(begun, PendingRequest)
    version = cluster.server.version
    begun.work.run()
    assert cluster.server.version == version
    answer = begun.resume(NOW + 1)
    assert isinstance(answer, HttpResponse)
    assert answer.status == (201 if method == "POST" else 200)
    assert cluster.server.version == version + 1
    short = cluster.server.begin(HttpRequest(method, path, (), headers, config_map("x", 9)), NOW)
    assert isinstance(short, HttpResponse)


def test_a_refusal_of_a_long_body_is_sent_after_it_was_read(cluster: RestartableCluster) -> None:
    body = b"[" + b" " * LONG_BYTES + b"]"
    begun = cluster.server.begin(HttpRequest("POST", f"{SPACE}/configmaps", (), ADMIN, body), NOW)
    assert isinstance(begun, PendingRequest)
    answer = begun.resume(NOW)
    assert isinstance(answer, HttpResponse)
    assert answer.status == 400


def test_a_kind_that_changed_while_a_body_was_read_is_not_written(
    cluster: RestartableCluster,
) -> None:
    body = config_map("x", LONG_BYTES)
    begun = cluster.server.begin(HttpRequest("POST", f"{SPACE}/configmaps", (), ADMIN, body), NOW)
    assert isinstance(begun, PendingRequest)
    found = cluster.server.registry.find("", "v1", "configmaps")
    assert found is not None
    cluster.server.registry.remove(found)
    answer = begun.resume(NOW)
    assert isinstance(answer, HttpResponse)
    assert answer.status == 429


def test_a_long_answer_in_yaml_is_written_beside_or_not_at_all(cluster: RestartableCluster) -> None:
    yaml = {**ADMIN, "accept": "application/yaml"}
    path = f"{SPACE}/configmaps"
    for number in range(2):
        asked(cluster, "POST", path, config_map(f"x{number}", 300_000))
    begun = cluster.server.begin(HttpRequest("GET", f"{path}/x0", (), yaml), NOW)
    assert isinstance(begun, PendingRequest)
    answer = begun.resume(NOW)
    assert isinstance(answer, HttpResponse)
    assert answer.body.startswith(b"apiVersion: v1\n")
    refused = asked(cluster, "GET", path, headers=yaml)
    assert refused.status == 406
    assert b"too long for YAML" in refused.body
    assert asked(cluster, "GET", path).status == 200


# Numbers


@pytest.mark.parametrize("name", ["limit", "timeoutSeconds", "gracePeriodSeconds"])
@pytest.mark.parametrize("value", [DIGITS, f"-{DIGITS}", "²", "1_0", " 1"])
def test_numbers_of_queries_are_read_as_go_reads_them(
    cluster: RestartableCluster, name: str, value: str
) -> None:
    method, path = ("DELETE", "pods/p") if name == "gracePeriodSeconds" else ("GET", "pods")
    answer = asked(cluster, method, f"{SPACE}/{path}", query=((name, value),))
    assert answer.status == 400
    assert b"strconv.ParseInt: parsing" in answer.body


@pytest.mark.parametrize("operator", [">", "<"])
def test_a_label_operator_with_many_digits_is_refused(
    cluster: RestartableCluster, operator: str
) -> None:
    answer = asked(
        cluster, "GET", f"{SPACE}/pods", query=(("labelSelector", f"a{operator}{DIGITS}"),)
    )
    assert answer.status == 400
    assert b"the value must be an integer" in answer.body


@pytest.mark.parametrize("version", [DIGITS, "abc", "-5"])
def test_a_version_that_is_no_number_is_ignored_where_none_is_wanted(
    cluster: RestartableCluster, version: str
) -> None:
    meta = {"name": "new", "resourceVersion": version}
    config = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta}
    path = f"{SPACE}/configmaps"
    made = asked(cluster, "POST", path, config)
    assert made.status == 201
    assert json.loads(made.body)["metadata"]["resourceVersion"] != version
    # An apply that creates reads it, as the original does.
    meta["name"] = "applied"
    apply = (("fieldManager", "x"),)
    media = "application/apply-patch+yaml"
    refused = asked(cluster, "PATCH", f"{path}/applied", config, media, query=apply)
    assert (refused.status, b"strconv.ParseUint: parsing" in refused.body) == (500, True)


def test_numbers_of_objects_are_checked_and_not_computed(cluster: RestartableCluster) -> None:
    spec = {"selector": {"matchLabels": {"a": "b"}}}
    budget = {"metadata": {"name": "x"}, "spec": {**spec, "maxUnavailable": f"{DIGITS}%"}}
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
    answer = asked(cluster, "POST", path, budget)
    assert answer.status == 422
    assert b"must not be greater than 100%" in answer.body
    job = {"spec": {"template": {"spec": {"containers": [], "restartPolicy": "Never"}}}}
    cron = {
        "metadata": {"name": "x"},
        "spec": {"schedule": f"{DIGITS} * * * *", "jobTemplate": job},
    }
    answer = asked(cluster, "POST", "/apis/batch/v1/namespaces/default/cronjobs", cron)
    assert answer.status == 422
    assert b"value out of range" in answer.body


def test_go_reads_numbers() -> None:
    assert [parse_int(text) for text in ("+1", "-01", "0" * 9000 + "7")] == [1, -1, 7]
    assert parse_int(str(-(2**63))) == -(2**63)
    assert parse_uint(str(2**64 - 1)) == 2**64 - 1
    assert [saturated_int(text) for text in (DIGITS, f"-{DIGITS}", "5")] == [2**63 - 1, -(2**63), 5]
    for text in ("", "-", "²", "1_0", "1 ", "1.0"):
        with pytest.raises(NumError, match="invalid syntax"):
            parse_int(text)
    for text in (DIGITS, str(2**63)):
        with pytest.raises(NumError, match="value out of range"):
            parse_int(text)
    for text in ("+1", "-1", "x"):
        with pytest.raises(NumError, match="invalid syntax"):
            parse_uint(text)
    with pytest.raises(NumError, match="value out of range"):
        parse_int("300", 8)


def test_amounts_of_many_digits_are_written() -> None:
    total = canonical_quantity.amount("1e9999") + canonical_quantity.amount("1")
    assert canonical_quantity.format_quantity(total) == "1" + "0" * 9998 + "1"


# Lists


def test_deletions_of_a_strategic_merge_look_at_each_element_once(
    cluster: RestartableCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = strategic_merge._merge_identity
    calls = []

    def counted(element: Any, key: str) -> Any:
        calls.append(1)
        return real(element, key)

    monkeypatch.setattr(strategic_merge, "_merge_identity", counted)
    shape = cluster.server.registry.find("", "v1", "pods").schema.shape  # type: ignore[union-attr]
    counts = []
    for count in (200, 400):
        calls.clear()
        old = {"spec": {"containers": [{"name": f"b{n}"} for n in range(count)]}}
        gone = [{"$patch": "delete", "name": f"b{n}"} for n in range(count - 1)]
        new = strategic_merge.strategic_merge_patched(old, {"spec": {"containers": gone}}, shape)
        assert new == {"spec": {"containers": [{"name": f"b{count - 1}"}]}}
        counts.append(len(calls))
    assert counts[1] < 2.5 * counts[0]


def test_a_quota_of_many_wrong_scopes_gets_a_short_answer(cluster: RestartableCluster) -> None:
    quota = {"metadata": {"name": "x"}, "spec": {"scopes": [f"wrong{n}" for n in range(15_000)]}}
    answer = asked(cluster, "POST", f"{SPACE}/resourcequotas", quota)
    assert answer.status == 422
    assert len(answer.body) < 4 * CAUSES_BYTES_MAX
    assert json.loads(answer.body)["details"]["causes"][-1]["message"] == MORE_CAUSES


def test_many_small_causes_are_cut_too(cluster: RestartableCluster) -> None:
    env = [{"name": "=", "value": "x"}] * 3 * CAUSES_MAX
    pod = {"metadata": {"name": "x"}, "spec": {"containers": [{"name": "c", "env": env}]}}
    answer = asked(cluster, "POST", f"{SPACE}/pods", pod)
    assert len(json.loads(answer.body)["details"]["causes"]) == CAUSES_MAX + 1


def test_warnings_are_cut_as_the_original_cuts_them() -> None:
    few = WarningList()
    few.extend(["a" * 4000, "a" * 4000, "", "b" * 96])
    assert list(few.header_texts()) == ["a" * 4000, "b" * 96]
    many = WarningList()
    many.extend(f"{n:04}" + "x" * 1000 for n in range(10_000))
    header_texts = list(many.header_texts())
    assert {len(text) for text in header_texts} == {ITEM_MAX}
    assert len(header_texts) == TOTAL_MAX // ITEM_MAX
    many.append("one more")
    assert len(list(many.header_texts())) == len(header_texts)


def test_ports_that_all_clash_make_a_bounded_answer(cluster: RestartableCluster) -> None:
    ports = [{"containerPort": 80}] * 1000
    pod = {
        "metadata": {"name": "x"},
        "spec": {"containers": [{"name": "c", "image": "i", "ports": ports}]},
    }
    answer = asked(cluster, "POST", f"{SPACE}/pods", pod)
    assert answer.status == 201
    warned = [value for name, value in answer.headers if name == "Warning"]
    assert sum(map(len, warned)) < 2 * TOTAL_MAX
    assert "duplicate port definition with" in warned[0]


def test_a_full_node_port_range_is_reported(cluster: RestartableCluster) -> None:
    ports = [{"name": f"p{n}", "port": n + 1} for n in range(2769)]
    service = {"metadata": {"name": "x"}, "spec": {"type": "NodePort", "ports": ports}}
    answer = asked(cluster, "POST", f"{SPACE}/services", service)
    assert json.loads(answer.body)["message"] == (
        "Internal error occurred: failed to allocate a nodePort: range is full"
    )


def test_a_difference_of_many_lines_is_cut() -> None:
    spec = {"accessModes": [f"a{n}" for n in range(5000)]}
    other = {"accessModes": [*spec["accessModes"][:2000], "b", *spec["accessModes"][2001:]]}
    difference = internal_diff("core/v1.PersistentVolumeClaimSpec", spec, other)
    assert '-  "a2000",' in difference
    assert '+  "b",' in difference


# Texts and trees


def test_a_tree_of_too_many_values_or_too_long_paths_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    long = {"a" * 2000: {"b" * 2000: {"c" * 200: 1}}}
    with pytest.raises(ApiError, match="characters in the path"):
        check_extent(long)
    monkeypatch.setattr(parsing, "VALUES_MAX", 5)
    check_extent({"a": [1, 2], "b": {"c": 1}})
    with pytest.raises(ApiError, match="limit is 5 values"):
        check_extent({"a": [1, 2], "b": {"c": 1, "d": 2}})
    with pytest.raises(ApiError, match="values"):
        parse_json(b"[1,2,3,4,5,6" + b" " * LONG_BYTES + b"]")


def test_paths_are_written_only_for_keys_that_came_twice() -> None:
    raw = b'{"' + b"k" * 10_000 + b'":[' + b"{}," * 9 + b'{"a":1,"a":2}]}'
    assert parse_json(raw)[1] == [f'duplicate field "{"k" * parsing.PATH_MAX}"']


@pytest.mark.parametrize(
    "raw", [b"[" * 900 + b"x", b"[" * 999 + b"]" * 999, b"[" * 90_000, b'{"a":' * 90_000]
)
def test_no_depth_is_too_great_to_be_refused(raw: bytes) -> None:
    with pytest.raises(InvalidJson):
        parse_json(raw)


@pytest.mark.parametrize("depth", [900, 960, 980, 990, 2000])
def test_what_stood_under_an_equal_key_may_be_deep(depth: int) -> None:
    try:
        tree, _ = parse_json(b'{"a":' + b"[" * depth + b"]" * depth + b',"a":1}')
    except InvalidJson:
        return
    assert tree == {"a": 1}


def test_stored_objects_do_not_grow_beyond_the_bounds_of_bodies(
    cluster: RestartableCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked(cluster, "POST", f"{SPACE}/configmaps", config_map("x", 1))
    monkeypatch.setattr(
        "stowplan.apiserver.storage.registry_store.OBJECT_BYTES_MAX", LONG_BYTES + 40_000
    )
    media = "application/merge-patch+json"
    codes = [
        asked(
            cluster, "PATCH", f"{SPACE}/configmaps/x", {"data": {f"k{n}": "x" * 30_000}}, media
        ).status
        for n in range(4)
    ]
    assert codes == [200, 200, 200, 413]


@pytest.mark.parametrize("text", ["." * 60 + "a", ".a" + "[*]" * 40])
def test_a_path_that_leads_everywhere_leads_nowhere(text: str) -> None:
    tree: Any = 1
    for _ in range(25):
        tree = {"a": [tree, tree], "b": 1} if not isinstance(tree, dict) else {"a": [tree], "b": 1}
    assert len(JsonPath(text).find({"a": tree})) < PLACES_MAX


def test_a_path_is_refused_in_one_look() -> None:
    """Each blank could belong to four parts of the filter, which were all tried."""
    assert not JsonPath(".a[?(@" + " " * 20_000 + "x").is_readable
    assert JsonPath(".a[?(@.b == 'x y' )].c").find({"a": [{"b": "x y", "c": 1}]}) == [1]
    assert JsonPath(".a[?(@.b==1 )].c").find({"a": [{"b": 1, "c": 2}, {"b": 2}]}) == [2]


def test_defaults_of_a_schema_are_bounded() -> None:
    node = {"items": {"properties": {"a": {"default": {"b": [1] * 1000}}}}}
    value: list[Any] = [{} for _ in range(DEFAULTING_STEPS_MAX // 1000)]
    with pytest.raises(TooManyDefaults):
        set_defaults(value, node, DefaultingBudget(DEFAULTING_STEPS_MAX))
    set_defaults(few := [{}], node, DefaultingBudget(DEFAULTING_STEPS_MAX))
    assert few == [{"a": {"b": [1] * 1000}}]
    assert few[0]["a"] is not node["items"]["properties"]["a"]["default"]


@pytest.mark.parametrize(
    "schema",
    [
        {"required": [f"a{n}" for n in range(1000)]},
        {"allOf": [{"maxProperties": n} for n in range(1000)]},
        {"enum": list(range(1000))},
    ],
)
def test_a_check_against_a_schema_is_bounded(schema: dict[str, Any]) -> None:
    (cause,) = ValueValidator().check([{}] * 1000, {"items": schema})
    assert "takes too many steps" in cause.message


def test_listed_words_are_found_at_once() -> None:
    schema = {"items": {"type": "string", "enum": [f"e{n}" for n in range(5000)]}}
    assert ValueValidator().check(["e4999"] * 5000, schema) == []


# Memory


def test_rights_are_remembered_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rbac, "_CACHED_DECISIONS_MAX", 50)
    rights = rbac.RbacAuthorizer()
    user = User("system:anonymous", groups=("system:unauthenticated",))
    first = Attributes("get", path="/first")
    for number in range(200):
        rights.authorize(user, first)
        rights.authorize(user, Attributes("get", path=f"/{number}"))
    rights.authorize(user, Attributes("get", path="/" + "x" * 10_000))
    assert len(rights._remembered) == 50
    assert (user.name, user.groups, first) in rights._remembered
    assert all(len(key[2].path) < 1000 for key in rights._remembered)


def test_long_texts_are_not_remembered() -> None:
    seen = []

    @cache_short_texts(10)
    def length(text: str) -> int:
        seen.append(text)
        return len(text)

    for text in ("a", "a", "b" * (TEXT_MAX + 1), "b" * (TEXT_MAX + 1)):
        assert length(text) == len(text)
    assert len(seen) == 3
