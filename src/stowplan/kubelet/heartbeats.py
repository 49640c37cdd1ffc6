"""Heartbeats of hollow nodes: lease renewals, and periodic status updates.

A thousand nodes send a hundred heartbeats a second. To avoid a timer per heartbeat and bursts,
heartbeats are rounded to a few slots a second, over which nodes are spread evenly.

Source: kubelet v1.36, component-helpers apimachinery/lease and pkg/kubelet/nodestatus.
"""

from __future__ import annotations

import math

import msgspec

from stowplan.apis.core.pod_lifecycle import has_kubelet_annotation, is_kubelet_off
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.timestamps import format_micro_time, format_time
from stowplan.controller_runtime.object_fields import find_condition
from stowplan.controller_runtime.object_index import PodFacts, split_key
from stowplan.controller_runtime.resource_paths import LEASES, NODES
from stowplan.kubelet.hollow_nodes import node_status
from stowplan.objects.store import Store, WatchEvent
from stowplan.objects.timing.due_times import DueHeap

RENEW_SECONDS = 10.0
LEASE_SECONDS = 40
STATUS_SECONDS = 300.0
SLOT_SECONDS = 0.25
_LEASE_NAMESPACE = "kube-node-lease"
_SPREAD = 0.6180339887498949


class NodeHeartbeats:
    """Heartbeats of all nodes whose kubelet is not off; or, without `for_all`, of those with an
    annotation about their kubelet."""

    name = "hollow-heartbeats"
    observed: tuple[str, ...] = (NODES,)

    def __init__(self, api: Store, *, for_all: bool = True) -> None:
        self.api = api
        self._for_all = for_all
        self._due: DueHeap[str, float] = DueHeap()
        self._alive: dict[str, int] = {}
        self._posted: dict[str, float] = {}
        self._count = 0

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Handle a node that was added, deleted, stopped or resumed."""
        if change.path != NODES:
            return
        name = split_key(change)[1]
        node = None if change.type == "DELETED" else msgspec.json.decode(change.value)
        if node is None or is_kubelet_off(node):
            self._alive.pop(name, None)
            self._posted.pop(name, None)
            self._due.clear(name)
            return
        if name not in self._alive:
            # Numbers are those of a cluster where all nodes send heartbeats: their slots are too.
            self._count += 1
            self._alive[name] = self._count
        sends = self._for_all or has_kubelet_annotation(node)
        if sends and self._due.at(name) is None:
            self._due.set(name, 0.0)

    def work_once(self) -> bool:
        """Send the next due heartbeat; False if there is none."""
        name = self._due.take(self.api.now)
        if name is None:
            return False
        self._due.set(name, self._next(self._alive[name]))
        try:
            self._send(name)
        # Any exception concerns this node only: the others continue.
        except Exception as error:  # noqa: BLE001
            self.api.faults.add(self.name, name, error)
        return True

    @property
    def n_failing(self) -> int:
        """Always 0: a failed heartbeat is followed by the next."""
        return 0

    def next_at(self) -> float | None:
        """When the next heartbeat is due."""
        return self._due.next_at()

    def _next(self, number: int) -> float:
        """The node's next slot after now: the same offset in every period of ten seconds."""
        phase = (number * _SPREAD % 1.0) * RENEW_SECONDS
        phase = math.floor(phase / SLOT_SECONDS) * SLOT_SECONDS
        periods = math.floor((self.api.now - phase) / RENEW_SECONDS) + 1
        moment = periods * RENEW_SECONDS + phase
        # The first heartbeat may fall shortly before the node's slot: one more does no harm.
        return moment if moment > self.api.now else moment + RENEW_SECONDS

    def _send(self, name: str) -> None:
        try:
            long_ago = self.api.now - STATUS_SECONDS
            if self._posted.get(name, -math.inf) <= long_ago or self._is_unreachable(name):
                self._post_status(name)
            self._renew(name)
        except ApiError as error:
            # A conflicting write or deletion: the next heartbeat handles it.
            if error.code not in (404, 409):
                raise

    def _is_unreachable(self, name: str) -> bool:
        """True while the node is marked unreachable."""
        node = self.api.get(NODES, "", name)
        ready = find_condition(((node or {}).get("status") or {}).get("conditions") or (), "Ready")
        return ready is None or ready.get("status") != "True"

    def _renew(self, name: str) -> None:
        lease = self.api.get(LEASES, _LEASE_NAMESPACE, name)
        moment = format_micro_time(self.api.now)
        if lease is not None:
            lease["spec"]["renewTime"] = moment
            self.api.update(LEASES, lease)
            return
        node = self.api.get(NODES, "", name)
        if node is None:
            return
        owner = {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node["metadata"]["uid"]}
        meta = {"name": name, "namespace": _LEASE_NAMESPACE, "ownerReferences": [owner]}
        spec = {
            "holderIdentity": name,
            "leaseDurationSeconds": LEASE_SECONDS,
            "renewTime": moment,
        }
        try:
            self.api.create(LEASES, {"metadata": meta, "spec": spec})
        except ApiError as error:
            if error.code != 404:
                raise
            # Without the lease namespace the status serves as heartbeat.
            self._post_status(name)

    def _post_status(self, name: str) -> None:
        node = self.api.get(NODES, "", name)
        if node is None:
            return
        node["status"] = node_status(node, format_time(self.api.now))
        self.api.update_status(NODES, node)
        self._posted[name] = self.api.now
