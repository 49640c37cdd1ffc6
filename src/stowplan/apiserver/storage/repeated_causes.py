"""How often the original validates the metadata of an update: each time repeats the causes.

Once or twice for all kinds, and again in the kind's own validation. There is no rule: the counts
are those of recorded answers.

Source: apiserver v0.36, pkg/registry/rest/update.go; kubernetes v1.36, pkg/registry (strategies).
"""

from __future__ import annotations

from typing import NamedTuple

from stowplan.apis.machinery.resource import Resource


class CauseRepeats(NamedTuple):
    """problems: of the object alone. changes: against the old one. names: of its finalizers."""

    problems: int = 1
    changes: int = 2
    names: int = 1


_VALIDATED_TWICE = """
pods configmaps secrets serviceaccounts persistentvolumeclaims endpoints nodes namespaces
apps/controllerrevisions batch/jobs storage.k8s.io/csistoragecapacities
storage.k8s.io/storageclasses resource.k8s.io/resourceclaims
resource.k8s.io/resourceclaimtemplates resource.k8s.io/deviceclasses
rbac.authorization.k8s.io/roles rbac.authorization.k8s.io/rolebindings
rbac.authorization.k8s.io/clusterroles rbac.authorization.k8s.io/clusterrolebindings
"""
_OTHER_REPEATS = {
    "persistentvolumes": CauseRepeats(3, 1, 2),
    "limitranges": CauseRepeats(2, 1, 1),
    "storage.k8s.io/csinodes": CauseRepeats(2, 1, 1),
    "storage.k8s.io/volumeattachments": CauseRepeats(2, 1, 1),
    "policy/poddisruptionbudgets": CauseRepeats(1, 1, 0),
    "coordination.k8s.io/leases": CauseRepeats(1, 2, 0),
}
_USUAL_REPEATS = CauseRepeats()
_BY_PATH = {**dict.fromkeys(_VALIDATED_TWICE.split(), CauseRepeats(2, 2, 2)), **_OTHER_REPEATS}


def cause_repeats(resource: Resource, whole: bool) -> CauseRepeats:
    """The counts of a kind. whole: the object itself is written, not a subresource."""
    return _BY_PATH.get(resource.path, _USUAL_REPEATS) if whole else _USUAL_REPEATS
