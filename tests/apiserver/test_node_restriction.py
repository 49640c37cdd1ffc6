"""What a node may write: the statuses and texts of kube-apiserver 1.36.2 with NodeRestriction."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from stowplan.apis.machinery.access import AlwaysAllow
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User
from stowplan.objects.encoding.tree import Tree
from tests.apiserver.whole_server import NOW, WholeServer

PODS = "/api/v1/namespaces/default/pods"
NODES = "/api/v1/nodes"
CLAIMS = "/api/v1/namespaces/default/persistentvolumeclaims"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases"
CSI_NODES = "/apis/storage.k8s.io/v1/csinodes"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
TOKENS = "/api/v1/namespaces/default/serviceaccounts/default/token"
MERGE = "application/merge-patch+json"
MIRROR = {"kubernetes.io/config.mirror": "x"}
OWNER = {"apiVersion": "v1", "kind": "Node", "name": "n1", "controller": True, "uid": "NODE"}


def pod(name: str, node: str = "n1", annotations: Tree | None = None, **fields: object) -> Tree:
    owners = fields.pop("owners", [OWNER])
    meta = {"name": name, "annotations": annotations or {}, "ownerReferences": owners}
    container = {"name": "c", "image": "i", **fields.pop("container", {})}  # type: ignore[dict-item]
    return {"metadata": meta, "spec": {"nodeName": node, "containers": [container], **fields}}


def mirror(name: str, node: str = "n1", **fields: object) -> Tree:
    return pod(name, node, MIRROR, **fields)


def node(name: str, **labels: str) -> Tree:
    return {
        "metadata": {"name": name, "labels": {k.replace("__", "/"): v for k, v in labels.items()}}
    }


def labels(**changed: str | None) -> Tree:
    return {"metadata": {"labels": {key.replace("__", "/"): one for key, one in changed.items()}}}


def token(**bound: str) -> Tree:
    spec = {"audiences": [], "boundObjectRef": bound or None}
    return {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}


def csi_node(name: str) -> Tree:
    return {"metadata": {"name": name}, "spec": {"drivers": []}}


def resource_slice(name: str, node_name: str) -> Tree:
    pool = {"name": node_name, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d.example.com", "pool": pool, "nodeName": node_name, "devices": []}
    return {"metadata": {"name": name}, "spec": spec}


def secret_env() -> Tree:
    return {"env": [{"name": "E", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]}


SETTING: tuple[tuple[str, Tree], ...] = (
    (NODES, node("n1", **{"example.com__a": "b"})),
    (NODES, node("n2")),
    (PODS, pod("mine", owners=[])),
    (PODS, pod("theirs", "n2", owners=[])),
    (
        CLAIMS,
        {
            "metadata": {"name": "c"},
            "spec": {"accessModes": ["ReadWriteOnce"],
                     "resources": {"requests": {"storage": "1Gi"}}},
        },
    ),
    (SLICES, resource_slice("s2", "n2")),
)  # fmt: skip
"""What an administrator creates first."""

ANSWERS = Path(__file__).with_name("node_restriction.json")
"""Status and message of each answer, "" of a success: recorded from kube-apiserver 1.36.2."""


class TokenUsers(AlwaysAllow):
    """A request with a token comes from node n1, any other from an administrator."""

    def authenticate(self, request: HttpRequest, now: float) -> User:
        if "authorization" not in request.headers:
            return self.ADMIN
        return User("system:node:n1", groups=("system:nodes", "system:authenticated"))


VOLUMES: dict[str, Tree] = {
    "configMap": {"name": "m"},
    "secret": {"secretName": "s"},
    "persistentVolumeClaim": {"claimName": "c"},
    "csi": {"driver": "d.example.com"},
    "azureFile": {"secretName": "s", "shareName": "n"},
    "cephfs": {"monitors": ["m"], "secretRef": {"name": "s"}},
    "glusterfs": {"endpoints": "e", "path": "p"},
}
PROJECTED: dict[str, Tree] = {
    "configMap": {"name": "m"},
    "secret": {"name": "s"},
    "serviceAccountToken": {"path": "p"},
}


def requests() -> Iterator[tuple[str, str, Tree | None]]:
    """What node n1 asks, in order. NODE, MINE and THEIRS stand for uids."""
    yield from requests_of_pods()
    yield from requests_of_others()


def requests_of_pods() -> Iterator[tuple[str, str, Tree | None]]:
    """Pods, their subresources, and tokens that are bound to them."""
    yield "POST", PODS, pod("a")
    yield "POST", PODS, mirror("a", "n2")
    yield "POST", PODS, mirror("a", owners=[])
    yield "POST", PODS, mirror("a", owners=[OWNER, {**OWNER, "name": "n2", "controller": False}])
    yield "POST", PODS, mirror("a", owners=[{**OWNER, "name": "n2"}])
    yield "POST", PODS, mirror("a", owners=[{**OWNER, "controller": False}])
    yield "POST", PODS, mirror("a", owners=[{**OWNER, "blockOwnerDeletion": True}])
    yield "POST", PODS, mirror("a", owners=[{**OWNER, "uid": "other"}])
    yield "POST", PODS, mirror("a", serviceAccountName="default")
    yield "POST", PODS, mirror("a", container=secret_env())
    yield "POST", PODS, mirror("a", volumes=[{"name": "v", "configMap": {"name": "m"}}])
    for name, source in VOLUMES.items():
        yield "POST", PODS, mirror("a", volumes=[{"name": "v", name: source}])
    for name, source in PROJECTED.items():
        volume = {"name": "v", "projected": {"sources": [{name: source}]}}
        yield "POST", PODS, mirror("a", volumes=[volume])
    yield "POST", PODS, mirror("a", imagePullSecrets=[{"name": "s"}])
    yield "POST", PODS, mirror("a", container={"envFrom": [{"configMapRef": {"name": "m"}}]})
    yield "POST", PODS, mirror("b", volumes=[{"name": "v", "emptyDir": {}}])
    yield "PATCH", f"{PODS}/mine", labels(a="b")
    yield "PATCH", f"{PODS}/mine/status", {"status": {"message": "m"}}
    yield "PATCH", f"{PODS}/mine/status", labels(a="b")
    yield "PATCH", f"{PODS}/theirs/status", {"status": {"message": "m"}}
    claim = {"name": "x", "resourceClaimName": "y"}
    yield "PATCH", f"{PODS}/mine/status", {"status": {"resourceClaimStatuses": [claim]}}
    yield "POST", f"{PODS}/mine/binding", {"target": {"name": "n1"}}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction"}
    yield "POST", f"{PODS}/theirs/eviction", eviction | {"metadata": {"name": "theirs"}}
    yield "POST", f"{PODS}/none/eviction", eviction | {"metadata": {"name": "none"}}
    yield "DELETE", f"{PODS}/theirs", None
    yield "DELETE", f"{PODS}/none", None
    yield "POST", TOKENS, token()
    yield "POST", TOKENS, token(kind="Pod", apiVersion="v1", name="mine")
    yield "POST", TOKENS, token(kind="Pod", apiVersion="v1", name="mine", uid="other")
    yield "POST", TOKENS, token(kind="Pod", apiVersion="v1", name="theirs", uid="THEIRS")
    yield "POST", TOKENS, token(kind="Pod", apiVersion="v1", name="none", uid="other")
    yield "DELETE", f"{PODS}/mine", None


def requests_of_others() -> Iterator[tuple[str, str, Tree | None]]:
    """Nodes, claims, leases, CSINodes and slices."""
    yield "PATCH", f"{NODES}/n1", labels(**{"example.com__a": "c"})
    yield "PATCH", f"{NODES}/n1", labels(**{"kubernetes.io__hostname": "h"})
    yield "PATCH", f"{NODES}/n1", labels(**{"x.kubelet.kubernetes.io__a": "h"})
    yield "PATCH", f"{NODES}/n1", labels(**{"k8s.io__b": "h", "foo.kubernetes.io__a": "h"})
    yield "PATCH", f"{NODES}/n1", labels(**{"node-restriction.kubernetes.io__a": "h"})
    yield "PATCH", f"{NODES}/n1", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}
    yield "PATCH", f"{NODES}/n1", {"metadata": {"ownerReferences": [{**OWNER, "uid": "u"}]}}
    yield "PATCH", f"{NODES}/n1/status", {"status": {"phase": "Running"}}
    yield "PATCH", f"{NODES}/n2", labels(a="b")
    yield "POST", NODES, node("n3")
    yield "DELETE", f"{NODES}/n2", None
    yield "DELETE", f"{NODES}/n1", None
    yield "POST", PODS, mirror("c")
    yield (
        "POST",
        NODES,
        node("n1", **{"k8s.io__b": "h", "foo.node-restriction.kubernetes.io__a": "b"}),
    )
    yield "POST", NODES, node("n1", **{"node.kubernetes.io__b": "h"})
    yield "PATCH", f"{CLAIMS}/c", labels(a="b")
    yield "PATCH", f"{CLAIMS}/c/status", {"status": {"capacity": {"storage": "1Gi"}}}
    yield "POST", LEASES.format("default"), {"metadata": {"name": "n1"}}
    yield "POST", LEASES.format("kube-node-lease"), {"metadata": {"name": "n2"}}
    yield "POST", LEASES.format("kube-node-lease"), {"metadata": {"name": "n1"}}
    yield "DELETE", LEASES.format("kube-node-lease") + "/n2", None
    yield "POST", CSI_NODES, csi_node("n2")
    yield "POST", CSI_NODES, csi_node("n1")
    yield "DELETE", f"{CSI_NODES}/n2", None
    yield "POST", SLICES, resource_slice("s1", "n2")
    yield "POST", SLICES, resource_slice("s1", "n1")
    yield "DELETE", f"{SLICES}/s2", None
    yield "POST", "/api/v1/namespaces/default/configmaps", {"metadata": {"name": "free"}}


class Client:
    """A server with the objects of `SETTING`; uids: of these, by name."""

    def __init__(self) -> None:
        self.server = WholeServer(access=TokenUsers()).server
        for name in ("default", "kube-node-lease"):
            self.send("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        account = {"metadata": {"name": "default"}}
        self.send("POST", "/api/v1/namespaces/default/serviceaccounts", account)
        self.uids = {}
        for path, body in SETTING:
            status, made = self.send("POST", path, body)
            assert status == 201, made
            self.uids[made["metadata"]["name"]] = made["metadata"]["uid"]

    def send(
        self, method: str, path: str, body: Tree | None, *, from_node: bool = False
    ) -> tuple[int, Tree]:
        headers = {"content-type": MERGE if method == "PATCH" else "application/json"}
        if from_node:
            headers["authorization"] = "Bearer x"
        raw = b"" if body is None else json.dumps(body).encode()
        made = self.server.handle(HttpRequest(method, path, (), headers, raw), NOW)
        assert isinstance(made, HttpResponse)
        self.server.tick(NOW)
        return made.status, json.loads(made.body)

    def ask(self, method: str, path: str, body: Tree | None) -> tuple[int, str]:
        """Status and message of a node's request, uids by their names."""
        names = {"NODE": "n1", "MINE": "mine", "THEIRS": "theirs"}
        text = json.dumps(body)
        for name, stored in names.items():
            text = text.replace(f'"{name}"', f'"{self.uids[stored]}"')
        status, answer = self.send(method, path, json.loads(text), from_node=True)
        message = str(answer.get("message", "")) if status >= 400 else ""
        for name, stored in names.items():
            message = message.replace(self.uids[stored], name)
        return status, message


def test_every_answer_is_that_of_the_original() -> None:
    client = Client()
    wanted = json.loads(ANSWERS.read_text())
    got = [[*client.ask(*request)] for request in requests()]
    named = [f"{method} {path}" for method, path, _ in requests()]
    assert list(zip(named, got, strict=True)) == list(zip(named, wanted, strict=True))


def test_others_are_not_restricted() -> None:
    client = Client()
    assert client.send("PATCH", f"{NODES}/n2", labels(a="b"))[0] == 200
    assert client.send("POST", PODS, pod("free", "n2"))[0] == 201
    assert client.send("POST", SLICES, resource_slice("s9", "n2"))[0] == 201
