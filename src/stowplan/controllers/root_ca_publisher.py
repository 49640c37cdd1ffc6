"""Root certificate publisher: each active namespace has the ConfigMap `kube-root-ca.crt`.

The volume with the token of a pod's service account has it, too.

Source: kube-controller-manager v1.36, pkg/controller/certificates/rootcacertpublisher.
"""

from __future__ import annotations

from typing import Any

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.object_index import Key, PodFacts
from stowplan.controller_runtime.resource_paths import CONFIG_MAPS, NAMESPACES
from stowplan.objects.store import WatchEvent

CONFIG_MAP_NAME = "kube-root-ca.crt"
_PUBLISHED = (CONFIG_MAPS, CONFIG_MAP_NAME)
_KEY = "ca.crt"
_ANNOTATION = "kubernetes.io/description"
_DESCRIPTION = (
    "Contains a CA bundle that can be used to verify the kube-apiserver when using internal "
    "endpoints such as the internal service IP or kubernetes.default.svc. No other usage is "
    "guaranteed across distributions of Kubernetes clusters."
)


class RootCertificatePublisher(Controller):
    """Keeps the ConfigMaps; keys name namespaces. certificate: PEM, "" to publish none."""

    name = "root-ca-certificate-publisher"
    path = NAMESPACES
    certificate = ""

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a new or changed namespace, and that of a changed or deleted ConfigMap."""
        if not self.certificate:
            return
        if change.path == NAMESPACES and change.type != "DELETED":
            self.queue.add(("", change.name))
        elif (change.path, change.name) == _PUBLISHED and change.type != "ADDED":
            self.queue.add(("", change.namespace))

    def sync(self, key: Key) -> None:
        """Create the ConfigMap, or correct it."""
        namespace = self.api.get(NAMESPACES, *key)
        if namespace is None or (namespace.get("status") or {}).get("phase") != "Active":
            return
        data = {_KEY: self.certificate}
        found = self.api.get(CONFIG_MAPS, key[1], CONFIG_MAP_NAME)
        if found is None:
            self._create(key[1], data)
            return
        annotations = found["metadata"].get("annotations") or {}
        if found.get("data") != data or not annotations.get(_ANNOTATION):
            found["metadata"]["annotations"] = {**annotations, _ANNOTATION: _DESCRIPTION}
            self.api.update(CONFIG_MAPS, {**found, "data": data})

    def _create(self, namespace: str, data: dict[str, str]) -> None:
        meta: dict[str, Any] = {"name": CONFIG_MAP_NAME, "namespace": namespace}
        meta["annotations"] = {_ANNOTATION: _DESCRIPTION}
        made = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data}
        try:
            self.api.create(CONFIG_MAPS, made)
        except ApiError as error:
            if error.reason != "AlreadyExists":
                raise
