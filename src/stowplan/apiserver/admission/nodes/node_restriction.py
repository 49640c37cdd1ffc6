"""NodeRestriction: a node writes its own objects only, and few fields of them.

It concerns users of group system:nodes, as of a kubelet from outside; hollow nodes of the cluster
do not pass through it. PodCertificateRequests and CertificateSigningRequests are not looked at:
nothing here signs them.

Source: kube-apiserver v1.36, plugin/pkg/admission/noderestriction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from stowplan.apis.core.pod_resize import MIRROR_ANNOTATION
from stowplan.apis.machinery.errors import go_quoted, not_found
from stowplan.apis.machinery.http_messages import User
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    admission_forbidden,
    stored_object,
)
from stowplan.objects.encoding.tree import Tree

NODES_GROUP = "system:nodes"
NODE_PREFIX = "system:node:"
LEASE_NAMESPACE = "kube-node-lease"
RESTRICTED = "node-restriction.kubernetes.io"

_OWN_LABELS = frozenset(
    (
        "kubernetes.io/hostname",
        "kubernetes.io/os",
        "kubernetes.io/arch",
        "beta.kubernetes.io/os",
        "beta.kubernetes.io/arch",
        "beta.kubernetes.io/instance-type",
        "node.kubernetes.io/instance-type",
        "topology.kubernetes.io/zone",
        "topology.kubernetes.io/region",
        "failure-domain.beta.kubernetes.io/zone",
        "failure-domain.beta.kubernetes.io/region",
    )
)
_OWN_NAMESPACES = ("kubelet.kubernetes.io", "node.kubernetes.io")
_CLAIM_STATUS = ("capacity", "conditions", "allocatedResourceStatuses", "allocatedResources")
_VOLUMES = {
    "csi": "csidrivers (via CSI volumes)",
    "glusterfs": "endpoints (via glusterFS volumes)",
    "persistentVolumeClaim": "persistentvolumeclaims",
    "ephemeral": "persistentvolumeclaims (via ephemeral volumes)",
}
_SECRET_FIELDS = ("secretRef", "nodePublishSecretRef", "secretName")
_PROJECTED = {
    "serviceAccountToken": "serviceaccounts (via projected volumes)",
    "clusterTrustBundle": "clustertrustbundles",
    "podCertificate": "podcertificates",
}


class NodeRestriction(AdmissionPluginBase):
    """Refuses what a node may not write."""

    repeatable = True

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403, or 404 for an object that the write refers to."""
        node = node_of(call.user)
        check = _CHECKS.get(call.resource.path)
        if node is None or check is None:
            return
        if not node:
            why = f"could not determine node from user {go_quoted(call.user.name)}"
        else:
            why = check(node, call, obj, old)
        if why:
            raise admission_forbidden(call, obj or old, why)


def node_of(user: User) -> str | None:
    """The node that the user is, "" for a node without a name, None for any other user."""
    if NODES_GROUP not in user.groups or not user.name.startswith(NODE_PREFIX):
        return None
    return user.name.removeprefix(NODE_PREFIX)


def _operation(call: ApiCall, obj: Tree | None, old: Tree | None) -> str:
    """CREATE, UPDATE or DELETE."""
    if obj is None:
        return "DELETE"
    return "CREATE" if old is None else "UPDATE"


def _pod(node: str, call: ApiCall, obj: Tree | None, old: Tree | None) -> str:
    if call.subresource:
        check = _POD_SUBRESOURCES.get(call.subresource)
        if check is None:
            allowed = "only 'status' and 'eviction' are allowed"
            return f"unexpected pod subresource {go_quoted(call.subresource)}, {allowed}"
        return check(node, call, obj, old)
    if obj is None:
        own = (old or {})["spec"].get("nodeName", "") == node
        return "" if own else f'node "{node}" can only delete pods with spec.nodeName set to itself'
    if old is None:
        return _created_pod(node, call, obj)
    return f'unexpected operation "UPDATE", node "{node}" can only create and delete mirror pods'


def _created_pod(node: str, call: ApiCall, pod: Tree) -> str:
    meta, only = pod["metadata"], f'node "{node}" can only create'
    if MIRROR_ANNOTATION not in (meta.get("annotations") or {}):
        return f'pod does not have "{MIRROR_ANNOTATION}" annotation, {only} mirror pods'
    if pod["spec"].get("nodeName", "") != node:
        return f"{only} pods with spec.nodeName set to itself"
    owners = meta.get("ownerReferences") or ()
    if len(owners) > 1:
        return f"{only} pods with a single owner reference set to itself"
    owner = owners[0] if owners else {}
    if tuple(owner.get(key) for key in ("apiVersion", "kind", "name")) != ("v1", "Node", node):
        return f"{only} pods with an owner reference set to itself"
    if not owner.get("controller"):
        return f"{only} pods with a controller owner reference set to itself"
    if owner.get("blockOwnerDeletion"):
        return f'node "{node}" must not set blockOwnerDeletion on an owner reference'
    stored = stored_object(call, "nodes", "", node)
    if stored is None:
        raise not_found("", "node", node)
    uid = stored["metadata"]["uid"]
    if owner.get("uid") != uid:
        return f"node {node} UID mismatch: expected {owner.get('uid', '')} got {uid}"
    referred = next(_referred_objects(pod["spec"]), "")
    return f'node "{node}" can not create pods that reference {referred}' if referred else ""


def _referred_objects(spec: Tree) -> Iterator[str]:
    """Resources of the API that the pod needs."""
    if spec.get("serviceAccountName"):
        yield "serviceaccounts"
    containers = [
        one
        for field in ("initContainers", "containers", "ephemeralContainers")
        for one in spec.get(field) or ()
    ]
    sources = [one for each in containers for one in each.get("envFrom") or ()]
    values = [one.get("valueFrom") or {} for each in containers for one in each.get("env") or ()]
    volumes = spec.get("volumes") or ()
    projected = [
        one for volume in volumes for one in (volume.get("projected") or {}).get("sources") or ()
    ]
    if (
        spec.get("imagePullSecrets")
        or _any_key(sources, "secretRef")
        or _any_key(values, "secretKeyRef")
        or _any_key([*volumes, *projected], "secret")
        or any(_has_secret(volume) for volume in volumes)
    ):
        yield "secrets"
    in_environment = _any_key(sources, "configMapRef") or _any_key(values, "configMapKeyRef")
    if in_environment or _any_key([*volumes, *projected], "configMap"):
        yield "configmaps"
    if spec.get("resourceClaims"):
        yield "resourceclaims"
    for volume in volumes:
        yield from (text for key, text in _VOLUMES.items() if key in volume)
    for source in projected:
        yield from (text for key, text in _PROJECTED.items() if key in source)


def _has_secret(volume: Tree) -> bool:
    """True for a volume of any driver that names a secret."""
    sources = [one for one in volume.values() if isinstance(one, dict)]
    return any(key in one for one in sources for key in _SECRET_FIELDS)


def _any_key(trees: Sequence[Tree], key: str) -> bool:
    return any(key in one for one in trees)


def _pod_status(node: str, call: ApiCall, obj: Tree | None, old: Tree | None) -> str:
    if obj is None or old is None:
        return f'unexpected operation "{_operation(call, obj, old)}"'
    if old["spec"].get("nodeName", "") != node:
        return f'node "{node}" can only update pod status for pods with spec.nodeName set to itself'
    if _differs(obj["metadata"], old["metadata"], "labels"):
        return f'node "{node}" cannot update labels through pod status'
    status, before = obj.get("status") or {}, old.get("status") or {}
    if _differs(status, before, "resourceClaimStatuses"):
        return f'node "{node}" cannot update resource claim statues'
    if _differs(status, before, "extendedResourceClaimStatus"):
        return f'node "{node}" cannot update extended resource claim status'
    return ""


def _pod_eviction(node: str, call: ApiCall, obj: Tree | None, old: Tree | None) -> str:
    pod = stored_object(call, "pods", call.namespace, call.name)
    if pod is None:
        raise not_found("", "pod", call.name)
    own = pod["spec"].get("nodeName", "") == node
    return "" if own else f"node {node} can only evict pods with spec.nodeName set to itself"


def _node(node: str, call: ApiCall, obj: Tree | None, old: Tree | None) -> str:
    name = call.name or ((obj or old or {}).get("metadata") or {}).get("name", "")
    if name != node:
        return f'node "{node}" is not allowed to modify node "{name}"'
    if obj is None:
        return ""
    spec, labels = obj.get("spec") or {}, obj["metadata"].get("labels") or {}
    if old is None:
        if spec.get("configSource") is not None:
            return f'node "{node}" is not allowed to create pods with a non-nil configSource'
        refused = _refused_labels(labels, {})
        listed = ", ".join(refused)
        return f'node "{node}" is not allowed to set the following labels: {listed}' * bool(refused)
    before, refusal = old.get("spec") or {}, f'node "{node}" is not allowed to'
    if spec.get("configSource") is not None and _differs(spec, before, "configSource"):
        return f"{refusal} update configSource to a new non-nil configSource"
    if _differs(spec, before, "taints"):
        return f"{refusal} modify taints"
    if _differs(obj["metadata"], old["metadata"], "ownerReferences"):
        return f"{refusal} modify ownerReferences"
    refused = _refused_labels(labels, old["metadata"].get("labels") or {})
    return f"is not allowed to modify labels: {', '.join(refused)}" if refused else ""


def _refused_labels(labels: Mapping[str, str], before: Mapping[str, str]) -> list[str]:
    """Changed labels that a node may not choose, in order."""
    changed = (key for key in {*labels, *before} if labels.get(key) != before.get(key))
    return sorted(key for key in changed if _is_refused(key))


def _is_refused(label: str) -> bool:
    prefix, slash, _ = label.partition("/")
    domain = prefix if slash else ""
    if _is_below(domain, RESTRICTED):
        return True
    if not (_is_below(domain, "kubernetes.io") or _is_below(domain, "k8s.io")):
        return False
    return label not in _OWN_LABELS and not any(_is_below(domain, one) for one in _OWN_NAMESPACES)


def _is_below(domain: str, parent: str) -> bool:
    return domain == parent or domain.endswith(f".{parent}")


def _claim(node: str, call: ApiCall, obj: Tree | None, old: Tree | None) -> str:
    if call.subresource != "status":
        return "may only update PVC status"
    if obj is None or old is None:
        return f'unexpected operation "{_operation(call, obj, old)}"'
    if _without_status(obj) == _without_status(old):
        return ""
    return (
        f'node "{node}" is not allowed to update fields other than status.quantity and '
        "status.conditions"
    )


def _without_status(claim: Tree) -> Tree:
    """A claim without what its node may write."""
    meta = {
        key: value
        for key, value in claim["metadata"].items()
        if key not in ("resourceVersion", "managedFields")
    }
    status = {
        key: value for key, value in (claim.get("status") or {}).items() if key not in _CLAIM_STATUS
    }
    return {**claim, "metadata": meta, "status": status}


def _token(node: str, call: ApiCall, obj: Tree | None, old: Tree | None) -> str:
    if call.subresource != "token" or obj is None:
        return ""
    spec = obj.get("spec") or {}
    bound = spec.get("boundObjectRef") or {}
    if (bound.get("apiVersion"), bound.get("kind")) != ("v1", "Pod") or not bound.get("name"):
        return "node requested token not bound to a pod"
    if not bound.get("uid"):
        return "node requested token with a pod binding without a uid"
    pod = stored_object(call, "pods", call.namespace, bound["name"])
    if pod is None:
        raise not_found("", "pod", bound["name"])
    if bound["uid"] != pod["metadata"]["uid"]:
        return (
            f"the UID in the bound object reference ({bound['uid']}) does not match the UID in "
            "record. The object might have been deleted and then recreated"
        )
    if pod["spec"].get("nodeName", "") != node:
        return "node requested token bound to a pod scheduled on a different node"
    return ""


def _lease(node: str, call: ApiCall, obj: Tree | None, old: Tree | None) -> str:
    if call.namespace != LEASE_NAMESPACE:
        return f'can only access leases in the "{LEASE_NAMESPACE}" system namespace'
    own = _is_named(node, call, obj)
    return "" if own else "can only access node lease with the same name as the requesting node"


def _csi_node(node: str, call: ApiCall, obj: Tree | None, old: Tree | None) -> str:
    own = _is_named(node, call, obj)
    return "" if own else "can only access CSINode with the same name as the requesting node"


def _is_named(node: str, call: ApiCall, obj: Tree | None) -> bool:
    return node == (call.name or ((obj or {}).get("metadata") or {}).get("name", ""))


def _slice(node: str, call: ApiCall, obj: Tree | None, old: Tree | None) -> str:
    if obj is not None and old is not None:
        return ""
    verb, written = ("delete", old) if obj is None else ("create", obj)
    own = ((written or {}).get("spec") or {}).get("nodeName") == node
    text = f"can only {verb} ResourceSlice with the same NodeName as the requesting node"
    return "" if own else text


def _differs(one: Mapping[str, Any], other: Mapping[str, Any], key: str) -> bool:
    """True if a field differs; one that is missing and an empty one are alike."""
    return (one.get(key) or None) != (other.get(key) or None)


_Check = Callable[[str, ApiCall, "Tree | None", "Tree | None"], str]

_CHECKS: dict[str, _Check] = {
    "pods": _pod,
    "nodes": _node,
    "persistentvolumeclaims": _claim,
    "serviceaccounts": _token,
    "coordination.k8s.io/leases": _lease,
    "storage.k8s.io/csinodes": _csi_node,
    "resource.k8s.io/resourceslices": _slice,
}
"""Resource path -> why the write of a node is refused, "" where it is not."""

_POD_SUBRESOURCES: dict[str, _Check] = {"status": _pod_status, "eviction": _pod_eviction}
