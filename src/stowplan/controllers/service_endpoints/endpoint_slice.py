"""EndpointSlice controller: the addresses of a Service's pods, with their readiness.

Differs: IPv4 only, as simulated pods have; no topology hints; slices are filled in the order of
pod names, so that a change rewrites those after it, where the original changes as few as it can.
The controller also writes the object of the core kind Endpoints (see `endpoints`), which the
original's endpoint controller does.

Source: kube-controller-manager v1.36, pkg/controller/endpointslice and k8s.io/endpointslice.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from stowplan.apis.discovery.endpoint_slice import MANAGED_BY_LABEL, SERVICE_NAME_LABEL
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_fields import (
    controller_of,
    controller_reference,
    find_condition,
    is_deleting,
)
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import (
    ENDPOINT_SLICES,
    ENDPOINTS,
    NODES,
    PODS,
    SERVICES,
)
from stowplan.controllers.service_endpoints.endpoints import (
    HEADLESS_LABEL,
    delete_endpoints,
    write_endpoints,
)
from stowplan.controllers.service_endpoints.trigger_times import TRIGGER_ANNOTATION, TriggerTimes
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store, WatchEvent

CONTROLLER = "endpointslice-controller.k8s.io"
ZONE_LABEL = "topology.kubernetes.io/zone"
ENDPOINTS_PER_SLICE_MAX = 100
BATCH_SECONDS = 0.5
"""How long pod changes are batched before the slices of their Services are written."""


class EndpointSliceController(Controller):
    """Writes the EndpointSlices of Services that have a selector; keys name Services."""

    name = "endpointslice"
    path = SERVICES

    def __init__(self, api: Store, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._selectors: dict[str, dict[str, dict[str, str]]] = {}
        self._triggers = TriggerTimes()

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed Service, those that select a changed pod, and that of a lost slice."""
        key = split_key(change)
        namespace = change.namespace
        if change.path == SERVICES:
            self._note_selector(change, key)
            self.queue.add(key)
        elif change.path == PODS:
            selectors = self._selectors.get(namespace)
            now = self.index.pods.get(key)
            if selectors and _facts_of_endpoint(before) != _facts_of_endpoint(now):
                known = [pod.labels for pod in (before, now) if pod]
                for service, selector in selectors.items():
                    if any(selector.items() <= labels.items() for labels in known):
                        self.queue.add((namespace, service), self.api.now + BATCH_SECONDS)
        elif change.path == ENDPOINTS and change.type != "ADDED":
            if key[1] in self._selectors.get(namespace, {}):
                self.queue.add(key, self.api.now + BATCH_SECONDS)
        elif change.path == ENDPOINT_SLICES and change.type != "ADDED":
            owner = controller_of(self.decoded(change.value) or {"metadata": {}})
            if owner is not None and owner["kind"] == "Service":
                self.queue.add((namespace, owner["name"]), self.api.now + BATCH_SECONDS)

    def sync(self, key: Key) -> None:
        """Write the slices of a Service that differ, and delete those too many."""
        service = self.api.get(SERVICES, *key)
        if service is None:
            delete_endpoints(self.api, key)
            self._triggers.forget(key)
            return
        if is_deleting(service):
            return
        spec = service["spec"]
        if not spec.get("selector") or spec.get("type") == "ExternalName":
            return
        pods = list(self._selected_pods(service))
        wanted = list(self._wanted_slices(service, pods))
        changed_at = self._triggers.changed_at(key, service, pods)
        write_endpoints(self.api, service, wanted)
        items = sorted(self.index.dependents(service["metadata"]["uid"]))
        stored = (self.api.get(*item) for item in items if item[0] == ENDPOINT_SLICES)
        existing = [each for each in stored if each is not None]
        for at, each in enumerate(wanted):
            if at >= len(existing):
                _note_trigger(each, changed_at)
                self.api.create(ENDPOINT_SLICES, each)
                continue
            old = existing[at]
            labels = each["metadata"]["labels"]
            fields = ("endpoints", "ports")
            if old["metadata"].get("labels") == labels and all(
                (old.get(field) or []) == each[field] for field in fields
            ):
                continue
            old["metadata"]["labels"] = labels
            _note_trigger(old, changed_at)
            self.api.update(ENDPOINT_SLICES, old | {field: each[field] for field in fields})
        for extra in existing[len(wanted) :]:
            self.api.delete(ENDPOINT_SLICES, key[0], extra["metadata"]["name"])

    def _note_selector(self, change: WatchEvent, key: Key) -> None:
        known = self._selectors.setdefault(key[0], {})
        spec = msgspec.json.decode(change.value).get("spec") or {}
        if change.type == "DELETED" or not spec.get("selector"):
            known.pop(key[1], None)
        else:
            known[key[1]] = spec["selector"]

    def _selected_pods(self, service: Tree) -> Iterator[Tree]:
        """The pods that have not ended, by name."""
        selector = service["spec"]["selector"].items()
        facts = self.index.in_namespace(service["metadata"]["namespace"])
        for pod_facts in sorted(facts, key=lambda each: each.key):
            if pod_facts.is_finished or not selector <= pod_facts.labels.items():
                continue
            pod = self.api.get(PODS, *pod_facts.key)
            if pod is not None:
                yield pod

    def _wanted_slices(self, service: Tree, pods: list[Tree]) -> Iterator[Tree]:
        """The slices to store: by set of ports, at most 100 endpoints in each."""
        by_ports: dict[bytes, tuple[list[Tree], list[Tree]]] = {}
        for pod in pods:
            endpoint = self._endpoint(service, pod)
            if endpoint is None:
                continue
            ports = list(_ports_of(service, pod))
            group = by_ports.setdefault(msgspec.json.encode(ports), (ports, []))
            group[1].append(endpoint)
        if not by_ports:
            yield _slice(service, [], [])
        for ports, endpoints in by_ports.values():
            for start in range(0, len(endpoints), ENDPOINTS_PER_SLICE_MAX):
                yield _slice(service, ports, endpoints[start : start + ENDPOINTS_PER_SLICE_MAX])

    def _endpoint(self, service: Tree, pod: Tree) -> Tree | None:
        """The endpoint of a pod; None without an address."""
        status, spec, meta = pod["status"], pod["spec"], pod["metadata"]
        addresses = [each["ip"] for each in status.get("podIPs") or () if ":" not in each["ip"]]
        if not addresses:
            return None
        ready = find_condition(status.get("conditions") or (), "Ready")
        serving = ready is not None and ready["status"] == "True"
        terminating = is_deleting(pod)
        published = bool(service["spec"].get("publishNotReadyAddresses"))
        endpoint: Tree = {
            "addresses": addresses,
            "conditions": {
                "ready": published or (serving and not terminating),
                "serving": serving,
                "terminating": terminating,
            },
            "targetRef": {
                "kind": "Pod",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
            },
        }
        node = self.api.get(NODES, "", spec["nodeName"]) if spec.get("nodeName") else None
        if spec.get("nodeName"):
            endpoint["nodeName"] = spec["nodeName"]
        zone = None if node is None else (node["metadata"].get("labels") or {}).get(ZONE_LABEL)
        if zone:
            endpoint["zone"] = zone
        if spec.get("hostname") and spec.get("subdomain") == service["metadata"]["name"]:
            endpoint["hostname"] = spec["hostname"]
        return endpoint


def _note_trigger(slice_: Tree, changed_at: str) -> None:
    """Set the annotation of a slice that is written, or remove it."""
    annotations = dict(slice_["metadata"].get("annotations") or {})
    annotations.pop(TRIGGER_ANNOTATION, None)
    if changed_at:
        annotations[TRIGGER_ANNOTATION] = changed_at
    slice_["metadata"]["annotations"] = annotations


def _facts_of_endpoint(pod: PodFacts | None) -> tuple[object, ...] | None:
    """What of a pod its endpoint depends on; an address comes and goes with the phase."""
    if pod is None:
        return None
    return pod.uid, pod.phase, pod.ready, bool(pod.deleting), pod.node, pod.labels


def _ports_of(service: Tree, pod: Tree) -> Iterator[Tree]:
    """The ports of a Service, with the numbers that a pod's containers give their names."""
    for port in service["spec"].get("ports") or ():
        target = port.get("targetPort", port["port"])
        number = target if isinstance(target, int) else _port_number(pod, target, port["protocol"])
        if number is None:
            continue
        found = {"name": port.get("name", ""), "protocol": port["protocol"], "port": number}
        if "appProtocol" in port:
            found["appProtocol"] = port["appProtocol"]
        yield found


def _port_number(pod: Tree, name: str, protocol: str) -> int | None:
    sidecars = (
        each
        for each in pod["spec"].get("initContainers") or ()
        if each.get("restartPolicy") == "Always"
    )
    for container in (*pod["spec"]["containers"], *sidecars):
        for port in container.get("ports") or ():
            if port.get("name") == name and port.get("protocol") == protocol:
                return int(port["containerPort"])
    return None


def _slice(service: Tree, ports: list[Tree], endpoints: list[Tree]) -> Tree:
    meta = service["metadata"]
    labels = {**(meta.get("labels") or {})}
    labels.pop(HEADLESS_LABEL, None)
    if service["spec"].get("clusterIP") in (None, "", "None"):
        labels[HEADLESS_LABEL] = ""
    labels |= {SERVICE_NAME_LABEL: meta["name"], MANAGED_BY_LABEL: CONTROLLER}
    return {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {
            "generateName": f"{meta['name']}-",
            "namespace": meta["namespace"],
            "labels": labels,
            "ownerReferences": [controller_reference(service, "Service", "v1")],
        },
        "addressType": "IPv4",
        "endpoints": endpoints,
        "ports": ports,
    }
