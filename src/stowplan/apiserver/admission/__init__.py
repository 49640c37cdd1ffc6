"""Admission plugins: they change or reject writes.

The plugins are in the original's order. `default_admission` leaves out those that wait for
controllers: service accounts of pods, which `stowplan up` has, and the not-ready taint of new
nodes. Most recordings of a real API server were made without them.

Source: kube-apiserver v1.36, pkg/kubeapiserver/options/plugins.go.
"""

from __future__ import annotations

from stowplan.apis.machinery.resource import AdmissionPlugin
from stowplan.apiserver.admission.address_allocation import ServiceAddresses
from stowplan.apiserver.admission.default_ingress_class import DefaultIngressClass
from stowplan.apiserver.admission.default_tolerations import DefaultTolerationSeconds
from stowplan.apiserver.admission.limit_ranger import LimitRanger
from stowplan.apiserver.admission.namespace_lifecycle import NamespaceLifecycle
from stowplan.apiserver.admission.nodes.node_restriction import NodeRestriction
from stowplan.apiserver.admission.nodes.node_taint import NodeTaint
from stowplan.apiserver.admission.pod_group_admission import (
    JobGangAdmission,
    PodGroupAdmission,
)
from stowplan.apiserver.admission.pod_security.pod_security_admission import PodSecurity
from stowplan.apiserver.admission.pod_topology_labels import PodTopologyLabels
from stowplan.apiserver.admission.policies.validating_policies import (
    ValidatingAdmissionPolicies,
)
from stowplan.apiserver.admission.priority import PriorityAdmission
from stowplan.apiserver.admission.resource_quota import ResourceQuotaAdmission
from stowplan.apiserver.admission.runtime_class import RuntimeClassAdmission
from stowplan.apiserver.admission.service_accounts import ServiceAccountAdmission
from stowplan.apiserver.admission.volume_claims import (
    DefaultStorageClassAdmission,
    PersistentVolumeClaimResize,
    StorageObjectInUseProtection,
)
from stowplan.apiserver.admission.webhooks.webhook_admission import Mutations, ValidatingWebhooks

__all__ = ["admission_plugins", "default_admission"]


def default_admission() -> tuple[AdmissionPlugin, ...]:
    """The plugins that need no controllers, in order."""
    return admission_plugins(accounts=False, taints=False)


def admission_plugins(*, accounts: bool, taints: bool) -> tuple[AdmissionPlugin, ...]:
    """The plugins of a server, in order; all are on by default there. accounts: service accounts
    of pods, which a controller makes. taints: the taint of new nodes, which one removes."""
    identities = (ServiceAccountAdmission(),) if accounts else ()
    not_ready = (NodeTaint(),) if taints else ()
    priorities = PriorityAdmission()
    changing = (
        NamespaceLifecycle(),
        LimitRanger(),
        *identities,
        NodeRestriction(),
        *not_ready,
        PodSecurity(),
        priorities,
        PodGroupAdmission(priorities),
        DefaultTolerationSeconds(),
        DefaultStorageClassAdmission(),
        StorageObjectInUseProtection(),
        PersistentVolumeClaimResize(),
        RuntimeClassAdmission(),
        DefaultIngressClass(),
        PodTopologyLabels(),
    )
    return (
        *changing,
        Mutations(changing),
        JobGangAdmission(),
        ValidatingAdmissionPolicies(),
        ValidatingWebhooks(),
        ResourceQuotaAdmission(),
        ServiceAddresses(),
    )
