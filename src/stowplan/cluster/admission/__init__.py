"""Admission: what the server changes in, or refuses of, a write before it is validated.

The plugins stand in the original's order. Not here: service accounts, quota and limit ranges, the
not-ready taint of new nodes.

Source: kube-apiserver v1.36, pkg/kubeapiserver/options/plugins.go.
"""

from __future__ import annotations

from stowplan.cluster.admission.lifecycle import NamespaceLifecycle
from stowplan.cluster.admission.priority import Priority
from stowplan.cluster.admission.runtime import RuntimeClasses
from stowplan.cluster.admission.storage import ClaimResize, DefaultStorageClass, InUseProtection
from stowplan.cluster.admission.tolerations import DefaultTolerations
from stowplan.cluster.admission.topology import TopologyLabels
from stowplan.cluster.resource import Admission

__all__ = ["default_admission"]


def default_admission() -> tuple[Admission, ...]:
    """The plugins of a server with default settings, in order."""
    return (
        NamespaceLifecycle(),
        Priority(),
        DefaultTolerations(),
        DefaultStorageClass(),
        InUseProtection(),
        ClaimResize(),
        RuntimeClasses(),
        TopologyLabels(),
    )
