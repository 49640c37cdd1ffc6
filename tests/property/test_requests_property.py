"""Whatever a client sends, the API server answers, and never with a failure of its own."""

import copy
import json
from typing import Any

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User, WatchResponse
from stowplan.apiserver.admission import default_admission
from stowplan.apiserver.auth.static_tokens import StaticTokens
from stowplan.apiserver.auth.token_rbac import TokenRbacAccess
from stowplan.apiserver.bootstrap_objects import create_bootstrap_objects
from stowplan.apiserver.discovery.default_pages import default_pages
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.assembly.embedded_cluster import EmbeddedCluster
from tests.property.wrong import assert_caught
from tests.soak import examples

NOW = 1_800_000_000.0
ADMIN = User("admin", groups=("system:masters",))

Tree = dict[str, Any]


def embedded() -> EmbeddedCluster:
    access = TokenRbacAccess(StaticTokens([("admin", ADMIN), ("plain", User("plain"))]))
    options = ApiServerOptions(
        registry=built_in_registry(),
        access=access,
        admission=default_admission(),
        pages=default_pages("127.0.0.1:6443"),
        observers=(access,),
    )
    cluster = EmbeddedCluster(options, np.random.default_rng(1))
    create_bootstrap_objects(cluster.server, NOW)
    for name in ("pods", "configmaps"):
        resource = cluster.server.registry.find("", "v1", name)
        assert resource is not None
        obj = {"metadata": {"name": "x"}} | ({"spec": POD["spec"]} if name == "pods" else {})
        cluster.server.create(resource, obj, NOW, "default")
    return cluster


POD: Tree = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "x", "labels": {"a": "b"}, "annotations": {"c": "d"}},
    "spec": {
        "containers": [
            {
                "name": "c",
                "image": "i",
                "resources": {"requests": {"cpu": "100m", "memory": "1Gi"}},
                "ports": [{"containerPort": 80, "protocol": "TCP"}],
                "env": [{"name": "A", "value": "b"}],
            }
        ],
        "nodeSelector": {"a": "b"},
        "tolerations": [{"key": "k", "operator": "Exists", "effect": "NoExecute"}],
        "affinity": {
            "podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {
                        "topologyKey": "zone",
                        "labelSelector": {
                            "matchExpressions": [{"key": "a", "operator": "In", "values": ["b"]}]
                        },
                    }
                ]
            }
        },
        "topologySpreadConstraints": [
            {"maxSkew": 1, "topologyKey": "z", "whenUnsatisfiable": "DoNotSchedule"}
        ],
        "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Gi"}}],
    },
    "status": {"phase": "Pending"},
}
OTHERS: list[Tree] = [
    {"kind": "Binding", "metadata": {"name": "x"}, "target": {"kind": "Node", "name": "n"}},
    {"kind": "DeleteOptions", "gracePeriodSeconds": 1, "preconditions": {"uid": "u"}},
    {"spec": {"resourceAttributes": {"verb": "get", "resource": "pods"}}},
    {
        "kind": "Deployment",
        "metadata": {"name": "d"},
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": {"a": "b"}},
            "template": {"metadata": {"labels": {"a": "b"}}, "spec": POD["spec"]},
        },
    },
    {
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "things.example.org"},
        "spec": {
            "group": "example.org",
            "scope": "Namespaced",
            "names": {"kind": "Thing", "plural": "things"},
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": {"type": "object"}},
                }
            ],
        },
    },
    {"op": "add", "path": "/metadata/labels/a", "value": "b"},
    {"spec": {"$patch": "replace", "$setElementOrder/containers": [{"name": "c"}]}},
]
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(allow_nan=False),
    st.text(max_size=20),
    st.sampled_from(["", "1", "100m", "-1", "1e400", "9" * 40, "a/b", "A", "\x00", "é", "<x>"]),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)


@st.composite
def mutated(draw: st.DrawFn) -> Any:
    """A body that is nearly right: up to three places changed, dropped or doubled."""
    tree = copy.deepcopy(draw(st.sampled_from([POD, POD, *OTHERS])))
    for _ in range(draw(st.integers(0, 3))):
        node: Any = tree
        for _ in range(draw(st.integers(0, 9))):
            keys = list(node) if isinstance(node, dict) else range(len(node))
            if not keys:
                break
            key = draw(st.sampled_from(list(keys)))
            if not isinstance(node[key], dict | list):
                break
            node = node[key]
        if isinstance(node, dict):
            key = draw(st.sampled_from([*node, "metadata", "spec", "status", "kind"]))
            node[key] = draw(VALUES)
        elif node:
            node[draw(st.integers(0, len(node) - 1))] = draw(VALUES)
        else:
            node.append(draw(VALUES))
    return [tree] if draw(st.integers(0, 9)) == 0 else tree


BODIES = st.one_of(
    mutated().map(lambda tree: json.dumps(tree).encode()),
    VALUES.map(lambda tree: json.dumps(tree).encode()),
    st.binary(max_size=60),
    st.sampled_from([b"", b"{}", b"[]", b"null", b"{", b"[" * 5000, b'{"a":1,"a":2}', b"k8s\x00"]),
)
_PARTS = (
    "x default pods nodes namespaces status binding eviction scale deployments events finalize "
    "watch %00 %2e%2e .. %zz é *"
)
PARTS = st.one_of(
    st.sampled_from(["", *_PARTS.split()]),
    st.text(
        st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="?#"), max_size=5
    ),
)
ROOTS = st.sampled_from(
    [
        "/api/v1/namespaces/default/pods",
        "/api/v1/namespaces/default/pods/x",
        "/api/v1/namespaces/default/pods/x/status",
        "/api/v1/namespaces/default/pods/x/binding",
        "/api/v1/namespaces/default/pods/x/eviction",
        "/api/v1/namespaces/default/configmaps/x",
        "/api/v1/namespaces/default",
        "/api/v1/nodes",
        "/api/v1",
        "/apis/apps/v1/namespaces/default/deployments",
        "/apis/apps/v1/namespaces/default/deployments/d/scale",
        "/apis/apiextensions.k8s.io/v1/customresourcedefinitions",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
        "/apis/events.k8s.io/v1/events",
        "/apis/nosuch/v1/things",
        "/openapi/v3",
        "/version",
        "/",
        "",
    ]
)
PATHS = st.builds(lambda root, parts: "/".join([root, *parts]), ROOTS, st.lists(PARTS, max_size=2))
_NAMES = (
    "watch limit continue resourceVersion resourceVersionMatch timeoutSeconds labelSelector "
    "fieldSelector sendInitialEvents allowWatchBookmarks dryRun fieldManager fieldValidation force "
    "pretty gracePeriodSeconds orphan propagationPolicy includeObject timeout"
)
NAMES = st.sampled_from(_NAMES.split())
TEXTS = st.one_of(
    st.sampled_from(["true", "false", "1", "0", "-1", "All", "Strict", "a=b", "a in (b)", "(", "!"])
    | st.sampled_from(["metadata.name=x", "status.phase!=Running", "Exact", "NotOlderThan", "é"]),
    st.text(max_size=12),
)
MEDIA = st.sampled_from(
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/yaml",
        "application/merge-patch+json",
        "application/json-patch+json",
        "application/strategic-merge-patch+json",
        "application/apply-patch+yaml",
        "application/vnd.kubernetes.protobuf",
        "application/json;as=Table;v=v1;g=meta.k8s.io",
        "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
        "text/plain",
        "*/*",
        "",
        ";;;,,,",
    ]
)
HEADERS = st.fixed_dictionaries(
    {"authorization": st.sampled_from(["Bearer admin"] * 6 + ["Bearer plain", "Bearer x", "é"])},
    optional={
        "accept": MEDIA | st.text(max_size=10),
        "content-type": MEDIA | st.text(max_size=10),
        "impersonate-user": st.sampled_from(["bob", "", "system:serviceaccount:a:b"]),
        "impersonate-group": st.text(max_size=5),
        "impersonate-extra-a": st.text(max_size=5),
        "if-none-match": st.text(max_size=5),
    },
)
REQUESTS = st.builds(
    HttpRequest,
    method=st.sampled_from(
        ["GET", "POST", "PUT", "PATCH", "DELETE"] * 3 + ["HEAD", "OPTIONS", "X"]
    ),
    path=PATHS,
    query=st.lists(st.tuples(NAMES, TEXTS), max_size=3).map(tuple),
    headers=HEADERS,
    body=BODIES,
    peer=st.just("127.0.0.1:1"),
)

RECORDED_500 = ("resourceVersion: Invalid value",)
"""What the original answers with 500 too, as the recordings show."""


def answered(cluster: EmbeddedCluster, request: HttpRequest) -> None:
    """The request has an answer that a client can read; the server goes on."""
    answer = cluster.handle(request, NOW)
    if isinstance(answer, WatchResponse):
        assert answer.status == 200
        while (chunk := cluster.read(answer.number, NOW)).body and not chunk.end:
            for line in chunk.body.splitlines():
                json.loads(line)
        cluster.close(answer.number)
    else:
        _check(answer)
    cluster.tick(NOW)


def _check(answer: HttpResponse) -> None:
    media = dict(answer.headers).get("Content-Type", "")
    if media.startswith("application/json") and answer.body:
        body = msgspec.json.decode(answer.body)
        if answer.status >= 400:
            assert body["kind"] == "Status"
            assert body["code"] == answer.status
    if answer.status >= 500 and answer.status != 504:
        body_text = answer.body.decode("utf-8", "replace")
        assert any(text in body_text for text in RECORDED_500), body_text
    for name, value in answer.headers:
        assert "\n" not in name + value
        assert "\r" not in name + value


def test_every_request_is_answered() -> None:
    living = embedded()
    count = 0

    @settings(max_examples=examples(1000))
    @given(REQUESTS)
    def look(request: HttpRequest) -> None:
        nonlocal living, count
        count += 1
        if count % 200 == 0:
            living = embedded()
        answered(living, request)

    look()


def test_a_server_that_trusts_its_clients_is_caught() -> None:
    class Trusting:
        """Takes it for granted that a body that is sent is JSON."""

        def __init__(self) -> None:
            self.inner = embedded()

        def handle(self, request: HttpRequest, now: float) -> HttpResponse | WatchResponse:
            if request.method == "POST":
                try:
                    json.loads(request.body)
                except (ValueError, RecursionError):
                    return HttpResponse(500, (), b"JSONDecodeError")
            return self.inner.handle(request, now)

        def __getattr__(self, name: str) -> Any:
            return getattr(self.inner, name)

    trusting: Any = Trusting()
    assert_caught(lambda request: answered(trusting, request), REQUESTS)
