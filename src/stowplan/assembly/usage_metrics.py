"""metrics.k8s.io/v1beta1: simulated usage of pods and nodes, as `kubectl top` reads it.

The usage is that of autoscaling: annotations of pods, or a load that the pods of a workload share.
A node uses what its pods use.

Source: kubernetes-sigs/metrics-server (forms of answers); k8s.io/metrics v0.36.

Differs: the whole usage of a pod is that of its first container; lists have no field selectors.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.kind.registration import KindRegistration, register
from stowplan.apis.machinery.errors import bad_request, method_not_allowed, not_found
from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse, User
from stowplan.apis.machinery.label_selector import SelectorParseError, parse_label_selector
from stowplan.apis.machinery.resource import ServerContext
from stowplan.apis.machinery.timestamps import format_time
from stowplan.apiserver.http.negotiation import negotiate
from stowplan.apiserver.http.plain_pages import UNCACHED, decoded_path, response_in_form
from stowplan.apiserver.resource_registry import BuiltInRegistry, resource_of
from stowplan.controllers.autoscaling.replica_calculator import MetricsError
from stowplan.controllers.autoscaling.simulated_metrics import pod_samples
from stowplan.objects.encoding.tree import Tree

GROUP, VERSION = "metrics.k8s.io", "v1beta1"
_API_VERSION = f"{GROUP}/{VERSION}"
_START = f"/apis/{_API_VERSION}/"
_WINDOW = "15s"
_TARGETS = ("apps/deployments", "apps/statefulsets", "apps/replicasets", "replicationcontrollers")
_TYPES = """
PodMetrics -- what a pod uses.
  +PartialObjectMetadata
  timestamp Time!
  window string!
  containers [ContainerMetrics]!

ContainerMetrics
  name string!
  usage core.ResourceList!

NodeMetrics -- what a node uses.
  +PartialObjectMetadata
  timestamp Time!
  window string!
  usage core.ResourceList!
"""
_READ = ("get", "list")
_KINDS = register(
    KindRegistration(group=GROUP, version=VERSION, kind="PodMetrics", types=_TYPES, verbs=_READ),
    KindRegistration(
        group=GROUP, version=VERSION, kind="NodeMetrics", namespaced=False, verbs=_READ
    ),
)
_PLURALS = {"PodMetrics": "pods", "NodeMetrics": "nodes"}


def list_usage_metrics(registry: BuiltInRegistry) -> None:
    """Show the kinds in discovery."""
    for kind in _KINDS:
        registry.add_listed(resource_of(kind, _PLURALS[kind.kind]))


class UsageMetricsPages:
    """Answers requests for metrics (`options.NonResourcePages`)."""

    def answer(
        self, request: HttpRequest, user: User, server: ServerContext, now: float
    ) -> HttpResponse | None:
        path = decoded_path(request)
        if not path.startswith(_START):
            return None
        if request.method != "GET":
            raise method_not_allowed()
        parts = path.removeprefix(_START).split("/")
        namespace = ""
        if parts[0] == "namespaces" and len(parts) > 2:
            _, namespace, *parts = parts
        if (
            parts[0] not in ("pods", "nodes")
            or len(parts) > 2
            or (namespace and parts[0] != "pods")
        ):
            return None
        found = self._metrics(server, parts[0], namespace, now)
        if len(parts) == 1:
            found = _selected(request, found)
            kind = "PodMetricsList" if parts[0] == "pods" else "NodeMetricsList"
            head = {"kind": kind, "apiVersion": _API_VERSION, "metadata": {}}
            return _response(request, {**head, "items": list(found)})
        one = next((one for one in found if one["metadata"]["name"] == parts[1]), None)
        if one is None:
            raise not_found(GROUP, parts[0], parts[1])
        return _response(request, one)

    def _metrics(
        self, server: ServerContext, plural: str, namespace: str, now: float
    ) -> Iterator[Tree]:
        usages = _usages(server)
        pods = _all(server, "pods")
        if plural == "pods":
            for pod in pods:
                meta = pod["metadata"]
                used = usages.get((meta["namespace"], meta["name"]))
                if used is not None and namespace in ("", meta["namespace"]):
                    first = {"name": pod["spec"]["containers"][0]["name"], "usage": _printed(used)}
                    yield {**_head("PodMetrics", meta, now), "containers": [first]}
            return
        totals: dict[str, dict[str, int]] = {}
        for pod in pods:
            meta, node = pod["metadata"], pod["spec"].get("nodeName", "")
            for name, amount in usages.get((meta["namespace"], meta["name"]), {}).items():
                total = totals.setdefault(node, {})
                total[name] = total.get(name, 0) + amount
        for node in _all(server, "nodes"):
            used = totals.get(node["metadata"]["name"], {})
            yield {**_head("NodeMetrics", node["metadata"], now), "usage": _printed(used)}


def _selected(request: HttpRequest, found: Iterator[Tree]) -> Iterator[Tree]:
    """Metrics of objects with the labels that are asked for. Raises ApiError 400."""
    text = next((value for name, value in request.query if name == "labelSelector"), "")
    try:
        wanted = parse_label_selector(text)
    except SelectorParseError as error:
        raise bad_request(str(error)) from None
    labelled = ((one, one["metadata"].get("labels") or {}) for one in found)
    return (one for one, labels in labelled if all(each.matches(labels) for each in wanted))


def _response(request: HttpRequest, tree: Tree) -> HttpResponse:
    form = negotiate(request, transforms=False, has_messages=False)
    return response_in_form(tree, form, UNCACHED)


def _all(server: ServerContext, path: str) -> list[Tree]:
    resource = server.registry.by_path(path)
    return [] if resource is None else list(server.peek_all(resource))


def _head(kind: str, meta: Tree, now: float) -> Tree:
    kept = {key: meta[key] for key in ("name", "namespace", "labels") if key in meta}
    return {
        "kind": kind,
        "apiVersion": _API_VERSION,
        "metadata": {**kept, "creationTimestamp": format_time(now)},
        "timestamp": format_time(now),
        "window": _WINDOW,
    }


def _printed(used: dict[str, int]) -> Tree:
    """Amounts as metrics-server prints them: cores in billionths, memory in Ki."""
    cpu, memory = used.get("cpu", 0), used.get("memory", 0)
    return {"cpu": f"{cpu * 10**6}n" if cpu else "0", "memory": f"{memory // 1000 // 1024}Ki"}


def _usages(server: ServerContext) -> dict[tuple[str, str], dict[str, int]]:
    """What pods use, in thousandths, by namespace and name."""
    targets = {one["metadata"]["uid"]: one for path in _TARGETS for one in _all(server, path)}
    by_target: dict[str, list[Tree]] = {}
    for pod in _all(server, "pods"):
        by_target.setdefault(_target_uid(pod, targets), []).append(pod)
    found: dict[tuple[str, str], dict[str, int]] = {}
    for uid, pods in by_target.items():
        target = targets.get(uid) or {"metadata": {"name": ""}}
        for resource in ("cpu", "memory"):
            try:
                samples = pod_samples(target, pods, resource)
            except MetricsError:
                # As for an autoscaler: there is no metric of these pods.
                continue
            for pod, sample in zip(pods, samples, strict=True):
                if sample.usage is not None:
                    key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
                    found.setdefault(key, {})[resource] = sample.usage
    return found


def _target_uid(obj: Tree, targets: dict[str, Tree]) -> str:
    """The outermost workload that controls an object; "" for none."""
    uid = ""
    while True:
        owners = obj["metadata"].get("ownerReferences") or ()
        owner = next((one["uid"] for one in owners if one.get("controller")), "")
        if owner not in targets or owner == uid:
            return uid
        uid, obj = owner, targets[owner]
