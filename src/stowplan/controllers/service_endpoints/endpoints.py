"""Endpoints of a Service: the core kind before EndpointSlices, for clients that still read it.

They are made of the same endpoints as the slices, so a change is written to both at once.

Differs: ports are in the order of the Service, and subsets in that of their first pod, where the
original sorts both by hashes; no annotation says when a change came.

Source: kube-controller-manager v1.36, pkg/controller/endpoint, pkg/api/v1/endpoints/util.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from stowplan.controller_runtime.object_index import Key
from stowplan.controller_runtime.resource_paths import ENDPOINTS
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import Store

CONTROLLER = "endpoint-controller"
MANAGED_BY_LABEL = "endpoints.kubernetes.io/managed-by"
HEADLESS_LABEL = "service.kubernetes.io/headless"
CAPACITY_ANNOTATION = "endpoints.kubernetes.io/over-capacity"
ADDRESSES_MAX = 1000
"""Addresses of one Endpoints object; not ready ones are left out first."""


def write_endpoints(api: Store, service: Tree, slices: Iterable[Tree]) -> None:
    """Create or update the Endpoints of a Service if they differ. slices: its EndpointSlices."""
    wanted = endpoints_of(service, slices)
    meta = wanted["metadata"]
    stored = api.get(ENDPOINTS, meta["namespace"], meta["name"])
    if stored is None:
        api.create(ENDPOINTS, wanted)
        return
    old = stored["metadata"]
    annotations = dict(old.get("annotations") or {})
    over = meta["annotations"].get(CAPACITY_ANNOTATION)
    if annotations.pop(CAPACITY_ANNOTATION, None) != over:
        is_same = False
    else:
        is_same = (old.get("labels") or {}) == meta["labels"]
        is_same = is_same and (stored.get("subsets") or []) == wanted["subsets"]
    if not is_same:
        changed = old | {"labels": meta["labels"], "annotations": annotations | meta["annotations"]}
        api.update(ENDPOINTS, stored | {"metadata": changed, "subsets": wanted["subsets"]})


def delete_endpoints(api: Store, key: Key) -> None:
    """Delete the Endpoints of a Service that is gone."""
    stored = api.get(ENDPOINTS, *key)
    labels = {} if stored is None else stored["metadata"].get("labels") or {}
    if labels.get(MANAGED_BY_LABEL) == CONTROLLER:
        api.delete(ENDPOINTS, *key)


def endpoints_of(service: Tree, slices: Iterable[Tree]) -> Tree:
    """The Endpoints of a Service."""
    meta, spec = service["metadata"], service["spec"]
    labels = {k: v for k, v in (meta.get("labels") or {}).items() if k != HEADLESS_LABEL}
    if spec.get("clusterIP") in (None, "", "None"):
        labels[HEADLESS_LABEL] = ""
    labels[MANAGED_BY_LABEL] = CONTROLLER
    # One subset for each set of ports; a slice has up to 100 endpoints of one set.
    by_ports: dict[str, tuple[list[Tree], list[Tree], list[Tree]]] = {}
    for each in slices:
        ports = [_port(port) for port in each["ports"]]
        _, ready, unready = by_ports.setdefault(repr(ports), (ports, [], []))
        for endpoint in each["endpoints"]:
            conditions = endpoint["conditions"]
            if conditions["ready"]:
                ready.append(_address(endpoint))
            elif not conditions["terminating"]:
                unready.append(_address(endpoint))
    groups = [group for group in by_ports.values() if group[1] or group[2]]
    is_headless = spec.get("clusterIP") == "None"
    if not spec.get("ports") and not is_headless:
        groups = []
    n_addresses = sum(len(ready) + len(unready) for _, ready, unready in groups)
    annotations = {CAPACITY_ANNOTATION: "truncated"} if n_addresses > ADDRESSES_MAX else {}
    return {
        "apiVersion": "v1",
        "kind": "Endpoints",
        "metadata": {
            "name": meta["name"],
            "namespace": meta["namespace"],
            "labels": labels,
            "annotations": annotations,
        },
        "subsets": list(_subsets(groups)),
    }


def _subsets(groups: Iterable[tuple[list[Tree], list[Tree], list[Tree]]]) -> Iterable[Tree]:
    groups = list(groups)
    left_ready = ADDRESSES_MAX
    left = max(0, ADDRESSES_MAX - sum(len(ready) for _, ready, _ in groups))
    for ports, ready, unready in groups:
        subset: dict[str, Any] = {}
        ready, unready = sorted(ready, key=_order)[:left_ready], sorted(unready, key=_order)[:left]
        left_ready, left = left_ready - len(ready), left - len(unready)
        if ready:
            subset["addresses"] = ready
        if unready:
            subset["notReadyAddresses"] = unready
        if ports:
            subset["ports"] = ports
        if ready or unready:
            yield subset


def _order(address: Tree) -> tuple[str, str]:
    return address["ip"], address["targetRef"]["uid"]


def _port(port: Tree) -> Tree:
    """A port; its name is left out where it is empty."""
    return {name: value for name, value in port.items() if value != ""}


def _address(endpoint: Tree) -> Tree:
    found = {"ip": endpoint["addresses"][0], "targetRef": endpoint["targetRef"]}
    for name in ("hostname", "nodeName"):
        if name in endpoint:
            found[name] = endpoint[name]
    return found
