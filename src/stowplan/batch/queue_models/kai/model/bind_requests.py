"""Bind requests of KAI-Scheduler as sessions read them: their pods count as placed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from stowplan.batch.queue_models.queue_model import ModelCluster
from stowplan.objects.kai.bind_request import KaiBindRequest, placed_as_requested
from stowplan.objects.pod import Pod


class BindRequests:
    """The bind requests of a cluster, kept from one session to the next."""

    def __init__(self) -> None:
        # By key of the pod; and the key of the pod, by that of the request.
        self._requests: dict[str, KaiBindRequest] = {}
        self._pod_keys: dict[str, str] = {}
        self._nodes: frozenset[str] = frozenset()
        # Known as soon as there is a request: pods of gone ones may still be there.
        self._uids: dict[str, str] = {}

    def follow(self, cluster: ModelCluster, nodes: Collection[str]) -> Iterable[str]:
        """Uids of pods to be read again. nodes: names of those that exist."""
        found = cluster.objects.get(KaiBindRequest, {})
        changed = [key for kind, key in cluster.changed_objects if kind is KaiBindRequest]
        if not (found or changed or self._requests):
            return ()
        if not self._uids:
            changed = [*found]
        self._find_pods(cluster.pods, cluster.changed_pods)
        touched: dict[str, None] = {}
        for key in changed:
            before, request = self._pod_keys.pop(key, None), found.get(key)
            if before is not None:
                self._requests.pop(before, None)
                touched[before] = None
            if isinstance(request, KaiBindRequest):
                self._pod_keys[key] = request.pod_key
                self._requests[request.pod_key] = request
                touched[request.pod_key] = None
        names = frozenset(nodes)
        if names != self._nodes:
            self._nodes = names
            touched.update(dict.fromkeys(self._requests))
        return [self._uids[key] for key in touched if key in self._uids]

    def _find_pods(self, pods: Mapping[str, Pod], changed: Iterable[str]) -> None:
        if not self._uids or len(self._uids) > 2 * len(pods):
            self._uids = {pod.key: uid for uid, pod in pods.items()}
            return
        for uid in changed:
            pod = pods.get(uid)
            if pod is not None:
                self._uids[pod.key] = uid

    def applied(self, pod: Pod) -> Pod:
        """A pod as it is once its request is carried out."""
        request = self._requests.get(pod.key) if self._requests else None
        if request is None or request.spec.selected_node not in self._nodes:
            return pod
        return placed_as_requested(pod, request)
