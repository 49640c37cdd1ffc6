"""ServiceAccount controller: each active namespace has the account `default`.

Differs: accounts have no tokens.

Source: kube-controller-manager v1.36, pkg/controller/serviceaccount/serviceaccounts_controller.go.
"""

from __future__ import annotations

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_index import Key, PodFacts
from stowplan.controller_runtime.resource_paths import NAMESPACES, SERVICE_ACCOUNTS
from stowplan.objects.store import WatchEvent

DEFAULT_NAME = "default"


class ServiceAccountController(Controller):
    """Creates the default account of namespaces; keys name namespaces.

    That of a new namespace is created within the write of the namespace, so that the next request
    may create a pod, whose admission asks for it. Differs: the original creates it a moment later,
    and its API server waits for it for up to two seconds.
    """

    name = "serviceaccount"
    path = NAMESPACES
    observed = (NAMESPACES, SERVICE_ACCOUNTS)

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a new or changed namespace, and that of a deleted account."""
        if change.path == NAMESPACES and change.type != "DELETED":
            self.queue.add(("", change.name))
            if change.type == "ADDED":
                self.work_once()
        elif change.path == SERVICE_ACCOUNTS and change.type == "DELETED":
            self.queue.add(("", change.namespace))

    def sync(self, key: Key) -> None:
        """Create the account if it is missing."""
        namespace = self.api.get(NAMESPACES, *key)
        if namespace is None or (namespace.get("status") or {}).get("phase") != "Active":
            return
        if self.api.get(SERVICE_ACCOUNTS, key[1], DEFAULT_NAME) is not None:
            return
        meta = {"name": DEFAULT_NAME, "namespace": key[1]}
        try:
            self.api.create(
                SERVICE_ACCOUNTS, {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta}
            )
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
