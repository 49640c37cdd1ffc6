"""How often the original asks about the metadata of an update: each time adds its causes anew.

Once or twice for all kinds, and again in each kind's own rules. No rule says which: this is what a
server answers.

Source: apiserver v0.36, pkg/registry/rest/update.go; kubernetes v1.36, pkg/registry (strategies).
"""

from __future__ import annotations

from typing import NamedTuple

from stowplan.cluster.resource import Resource


class Repeats(NamedTuple):
    """problems: of the object alone. changes: against the old one. names: of its finalizers."""

    problems: int = 1
    changes: int = 2
    names: int = 1


_AGAIN = """
pods configmaps secrets serviceaccounts persistentvolumeclaims endpoints nodes namespaces
apps/controllerrevisions batch/jobs storage.k8s.io/csistoragecapacities
storage.k8s.io/storageclasses resource.k8s.io/resourceclaims
resource.k8s.io/resourceclaimtemplates resource.k8s.io/deviceclasses
rbac.authorization.k8s.io/roles rbac.authorization.k8s.io/rolebindings
rbac.authorization.k8s.io/clusterroles rbac.authorization.k8s.io/clusterrolebindings
"""
_OTHERS = {
    "persistentvolumes": Repeats(3, 1, 2),
    "limitranges": Repeats(2, 1, 1),
    "storage.k8s.io/csinodes": Repeats(2, 1, 1),
    "storage.k8s.io/volumeattachments": Repeats(2, 1, 1),
    "policy/poddisruptionbudgets": Repeats(1, 1, 0),
    "coordination.k8s.io/leases": Repeats(1, 2, 0),
}
_USUAL = Repeats()
_BY_PATH = {**dict.fromkeys(_AGAIN.split(), Repeats(2, 2, 2)), **_OTHERS}


def repeats(resource: Resource, whole: bool) -> Repeats:
    """For a kind. whole: the object itself is written, not a subresource."""
    return _BY_PATH.get(resource.path, _USUAL) if whole else _USUAL
