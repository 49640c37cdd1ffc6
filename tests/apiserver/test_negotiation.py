"""What answers look like on their outside: types that are spoken, refusals, empty tables."""

import json

import pytest

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apis.protobuf.codec import MAGIC
from stowplan.apiserver.http.negotiation import PROTOBUF
from tests.contract.apiserver.recorded_server import RestartableCluster

NOW = 1_790_000_000.0
PODS = "/api/v1/namespaces/default/pods"
LISTED = "application/json, application/yaml, application/vnd.kubernetes.protobuf"


@pytest.fixture(scope="module")
def cluster() -> RestartableCluster:
    return RestartableCluster("plain", NOW)


def refusal(cluster: RestartableCluster, request: HttpRequest) -> tuple[int, str]:
    headers = {"authorization": "Bearer admin-token", **request.headers}
    answer = cluster.handle(
        HttpRequest(request.method, request.path, request.query, headers, request.body), NOW
    )
    assert isinstance(answer, HttpResponse)
    return answer.status, json.loads(answer.body)["message"]


PATCHES = "415: Unsupported Media Type"


@pytest.mark.parametrize(
    ("path", "query"), [(PODS, ()), (PODS, (("watch", "1"),)), ("/apis", ()), ("/api/v1", ())]
)
@pytest.mark.parametrize("wanted", [PROTOBUF, f"application/cbor, {PROTOBUF};stream=watch"])
def test_who_takes_protobuf_gets_it(
    cluster: RestartableCluster, path: str, query: tuple[tuple[str, str], ...], wanted: str
) -> None:
    headers = {"authorization": "Bearer admin-token", "accept": wanted}
    answer = cluster.handle(HttpRequest("GET", path, query, headers), NOW)
    assert answer.status == 200
    media = f"{PROTOBUF};stream=watch" if query else PROTOBUF
    assert dict(answer.headers)["Content-Type"] == media


@pytest.mark.parametrize("path", [f"{PODS}/p", f"{PODS}/p/status"])
def test_a_patch_is_never_protobuf(cluster: RestartableCluster, path: str) -> None:
    request = HttpRequest("PATCH", path, (), {"content-type": PROTOBUF}, MAGIC + b"\n\x00")
    assert refusal(cluster, request) == (415, PATCHES)


@pytest.mark.parametrize("media", ["text/plain", "application/cbor", "multipart/form-data"])
def test_other_types_get_the_list_of_the_original(cluster: RestartableCluster, media: str) -> None:
    sent = refusal(cluster, HttpRequest("POST", PODS, (), {"content-type": media}, b"{}"))
    assert sent == (
        415,
        "the body of the request was in an unknown format - accepted media types include: "
        f"{LISTED}",
    )
    status, text = refusal(cluster, HttpRequest("GET", f"{PODS}/p", (), {"accept": media}))
    assert (status, text.rpartition(": ")[2]) == (406, LISTED)


@pytest.mark.parametrize(
    ("path", "rows"),
    [
        ("/api/v1/namespaces/default/limitranges", None),
        ("/apis/rbac.authorization.k8s.io/v1/roles?fieldSelector=metadata.name=none", None),
        ("/api/v1/namespaces/default/pods", []),
        ("/apis/storage.k8s.io/v1/storageclasses", []),
    ],
)
def test_a_table_without_rows(cluster: RestartableCluster, path: str, rows: object) -> None:
    """Kinds without a table of their own have null there, others an empty list."""
    path, _, query = path.partition("?")
    name, _, value = query.partition("=")
    pairs = ((name, value),) if name else ()
    headers = {
        "authorization": "Bearer admin-token",
        "accept": "application/json;as=Table;v=v1;g=meta.k8s.io",
    }
    answer = cluster.handle(HttpRequest("GET", path, pairs, headers), NOW)
    assert isinstance(answer, HttpResponse)
    assert json.loads(answer.body)["rows"] == rows
    headers["accept"] = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
    answer = cluster.handle(HttpRequest("GET", path, pairs, headers), NOW)
    assert isinstance(answer, HttpResponse)
    assert json.loads(answer.body)["items"] is None


def test_a_deletion_with_a_body_of_another_kind(cluster: RestartableCluster) -> None:
    headers = {"content-type": "application/json"}
    answer_text = refusal(
        cluster, HttpRequest("DELETE", f"{PODS}/p", (), headers, b'{"kind":"Pod"}')
    )
    assert answer_text[0] == 400
    assert answer_text[1].startswith(
        'no kind "Pod" is registered for version "meta.k8s.io/v1" in scheme'
    )


def post(cluster: RestartableCluster, path: str, tree: object) -> HttpResponse:
    body = json.dumps(tree).encode()
    answer = cluster.handle(
        HttpRequest("POST", path, (), {"authorization": "Bearer admin-token"}, body), NOW
    )
    assert isinstance(answer, HttpResponse)
    return answer


def test_both_kinds_of_attributes_in_one_review(cluster: RestartableCluster) -> None:
    spec = {"resourceAttributes": {}, "nonResourceAttributes": {"path": "/x"}}
    answer = post(cluster, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", {"spec": spec})
    assert answer.status == 422
    assert 'Invalid value: {"Path":"/x","Verb":""}: ' in json.loads(answer.body)["message"]


def test_zones_come_with_bindings_of_the_new_path_only(cluster: RestartableCluster) -> None:
    labels = {"topology.kubernetes.io/zone": "z"}
    post(cluster, "/api/v1/nodes", {"metadata": {"name": "zoned", "labels": labels}})
    for name, path in (("old", "bindings"), ("new", "pods/new/binding")):
        spec = {"containers": [{"name": "c", "image": "i"}]}
        post(cluster, PODS, {"metadata": {"name": name}, "spec": spec})
        target = {"kind": "Node", "name": "zoned"}
        bound = post(
            cluster,
            f"/api/v1/namespaces/default/{path}",
            {"metadata": {"name": name}, "target": target},
        )
        assert bound.status == 201
    got = {}
    for name in ("old", "new"):
        headers = {"authorization": "Bearer admin-token"}
        answer = cluster.handle(HttpRequest("GET", f"{PODS}/{name}", (), headers), NOW)
        assert isinstance(answer, HttpResponse)
        got[name] = json.loads(answer.body)["metadata"].get("labels")
    assert got == {"old": None, "new": labels}
