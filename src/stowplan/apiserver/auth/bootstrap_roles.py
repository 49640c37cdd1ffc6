"""The default roles and bindings of a cluster, as objects.

A role is a line `[name] to role ... from role ...` (`to`: its rules are aggregated into these
roles; `from`: it aggregates those labelled so) and its rules: verbs | groups | resources | names,
or verbs | paths. `core` is the group "", `read`, `write` and `both` stand for the usual verbs. A
line that begins with a blank continues the line before.

Source: kube-apiserver v1.36, plugin/auth/authorizer/rbac/bootstrappolicy (its default features).
Differs: the roles of controllers (`system:controller:...`) are left out: controllers run in the
same process without authorization.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.objects.encoding.tree import Tree

API_VERSION = "rbac.authorization.k8s.io/v1"
GROUP = "rbac.authorization.k8s.io"

_VERBS = {
    "read": ("get", "list", "watch"),
    "write": ("create", "delete", "deletecollection", "patch", "update"),
    "both": ("create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"),
}

_ROLES = """
[admin] from admin
[cluster-admin]
* | * | *
* | *
[edit] to admin from edit
[system:aggregate-to-admin] to admin
create | authorization.k8s.io | localsubjectaccessreviews
both | rbac.authorization.k8s.io | rolebindings roles
[system:aggregate-to-edit] to edit
read | core | pods/attach pods/exec pods/portforward pods/proxy secrets services/proxy
impersonate | core | serviceaccounts
write | core | pods pods/attach pods/exec pods/portforward pods/proxy
create | core | pods/eviction
write | core | configmaps persistentvolumeclaims replicationcontrollers
 replicationcontrollers/scale secrets serviceaccounts services services/proxy
create | core | serviceaccounts/token
write | core events.k8s.io | events
write | apps | daemonsets deployments deployments/rollback deployments/scale replicasets
 replicasets/scale statefulsets statefulsets/scale
write | autoscaling | horizontalpodautoscalers
write | batch | cronjobs jobs
write | extensions | daemonsets deployments deployments/rollback deployments/scale ingresses
 networkpolicies replicasets replicasets/scale replicationcontrollers/scale
write | policy | poddisruptionbudgets
write | networking.k8s.io | ingresses networkpolicies
both | coordination.k8s.io | leases
write | resource.k8s.io | resourceclaims resourceclaimtemplates
[system:aggregate-to-view] to view
read | core | configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods
 replicationcontrollers replicationcontrollers/scale serviceaccounts services services/status
read | core | bindings limitranges namespaces/status pods/log pods/status
 replicationcontrollers/status resourcequotas resourcequotas/status
read | core | namespaces
read | core events.k8s.io | events
read | discovery.k8s.io | endpointslices
read | apps | controllerrevisions daemonsets daemonsets/status deployments deployments/scale
 deployments/status replicasets replicasets/scale replicasets/status statefulsets
 statefulsets/scale statefulsets/status
read | autoscaling | horizontalpodautoscalers horizontalpodautoscalers/status
read | batch | cronjobs cronjobs/status jobs jobs/status
read | extensions | daemonsets daemonsets/status deployments deployments/scale
 deployments/status ingresses ingresses/status networkpolicies replicasets replicasets/scale
 replicasets/status replicationcontrollers/scale
read | policy | poddisruptionbudgets poddisruptionbudgets/status
read | networking.k8s.io | ingresses ingresses/status networkpolicies
read | resource.k8s.io | resourceclaims resourceclaims/status resourceclaimtemplates
[system:auth-delegator]
create | authentication.k8s.io | tokenreviews
create | authorization.k8s.io | subjectaccessreviews
[system:basic-user]
create | authorization.k8s.io | selfsubjectaccessreviews selfsubjectrulesreviews
create | authentication.k8s.io | selfsubjectreviews
[system:certificates.k8s.io:certificatesigningrequests:nodeclient]
create | certificates.k8s.io | certificatesigningrequests/nodeclient
[system:certificates.k8s.io:certificatesigningrequests:selfnodeclient]
create | certificates.k8s.io | certificatesigningrequests/selfnodeclient
[system:certificates.k8s.io:kube-apiserver-client-approver]
approve | certificates.k8s.io | signers | kubernetes.io/kube-apiserver-client
[system:certificates.k8s.io:kube-apiserver-client-kubelet-approver]
approve | certificates.k8s.io | signers | kubernetes.io/kube-apiserver-client-kubelet
[system:certificates.k8s.io:kubelet-serving-approver]
approve | certificates.k8s.io | signers | kubernetes.io/kubelet-serving
[system:certificates.k8s.io:legacy-unknown-approver]
approve | certificates.k8s.io | signers | kubernetes.io/legacy-unknown
[system:discovery]
get | /api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version /version/
[system:kube-aggregator]
read | core | endpoints services
[system:kube-controller-manager]
create patch update | core events.k8s.io | events
create | coordination.k8s.io | leases
get update | coordination.k8s.io | leases | kube-controller-manager
create | core | secrets serviceaccounts
delete | core | secrets
get | core | configmaps namespaces secrets serviceaccounts
update | core | secrets serviceaccounts
create | authentication.k8s.io | tokenreviews
create | authorization.k8s.io | subjectaccessreviews
list watch | * | *
create | core | serviceaccounts/token
[system:kube-dns]
list watch | core | endpoints services
[system:kube-scheduler]
create patch update | core events.k8s.io | events
create | coordination.k8s.io | leases
get list update watch | coordination.k8s.io | leases | kube-scheduler
both | coordination.k8s.io | leasecandidates
read | core | nodes
delete get list watch | core | pods
create | core | bindings pods/binding
patch update | core | pods/status
read | core | replicationcontrollers services
read | apps extensions | replicasets
read | apps | statefulsets
read | policy | poddisruptionbudgets
read | core | persistentvolumeclaims persistentvolumes
create | authentication.k8s.io | tokenreviews
create | authorization.k8s.io | subjectaccessreviews
read | storage.k8s.io | csinodes
read | storage.k8s.io | volumeattachments
read | core | namespaces
read | storage.k8s.io | csidrivers
read | storage.k8s.io | csistoragecapacities
read | resource.k8s.io | deviceclasses
get list patch update watch | resource.k8s.io | resourceclaims
get list patch update watch | resource.k8s.io | resourceclaims/status
update | core | pods/finalizers
read | resource.k8s.io | resourceslices
create delete | resource.k8s.io | resourceclaims
patch update | resource.k8s.io | resourceclaims/binding
[system:kubelet-api-admin]
read | core | nodes
proxy | core | nodes
* | core | nodes/log nodes/metrics nodes/proxy nodes/stats
* | core | nodes/configz nodes/healthz nodes/pods
[system:monitoring]
get | /flagz /healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*
 /statusz
get | core | nodes/metrics
[system:node]
create | authentication.k8s.io | tokenreviews
create | authorization.k8s.io | localsubjectaccessreviews subjectaccessreviews
read | core | services
create get list watch | core | nodes
patch update | core | nodes/status
patch update | core | nodes
create patch update | core events.k8s.io | events
read | core | pods
create delete | core | pods
patch update | core | pods/status
create | core | pods/eviction
read | core | configmaps secrets
get | core | persistentvolumeclaims persistentvolumes
get | core | endpoints
create get list watch | certificates.k8s.io | certificatesigningrequests
create delete get patch update | coordination.k8s.io | leases
get | storage.k8s.io | volumeattachments
create | core | serviceaccounts/token
get patch update | core | persistentvolumeclaims/status
read | storage.k8s.io | csidrivers
create delete get patch update | storage.k8s.io | csinodes
read | node.k8s.io | runtimeclasses
get | resource.k8s.io | resourceclaims
deletecollection | resource.k8s.io | resourceslices
get | core | serviceaccounts
[system:node-bootstrapper]
create get list watch | certificates.k8s.io | certificatesigningrequests
[system:node-problem-detector]
get | core | nodes
patch | core | nodes/status
create patch update | core events.k8s.io | events
[system:node-proxier]
list watch | core | endpoints services
read | core | nodes
create patch update | core events.k8s.io | events
list watch | networking.k8s.io | servicecidrs
list watch | discovery.k8s.io | endpointslices
[system:persistent-volume-provisioner]
create delete get list watch | core | persistentvolumes
get list update watch | core | persistentvolumeclaims
read | storage.k8s.io | storageclasses
watch | core | events
create patch update | core events.k8s.io | events
[system:public-info-viewer]
get | /healthz /livez /readyz /version /version/
[system:service-account-issuer-discovery]
get | /.well-known/openid-configuration /.well-known/openid-configuration/ /openid/v1/jwks
 /openid/v1/jwks/
[system:volume-scheduler]
get list patch update watch | core | persistentvolumes
read | storage.k8s.io | storageclasses
get list patch update watch | core | persistentvolumeclaims
[view] to edit from view
[kube-system/extension-apiserver-authentication-reader]
read | core | configmaps | extension-apiserver-authentication
[kube-system/system::leader-locking-kube-controller-manager]
create get list update watch | coordination.k8s.io | leases
create get list update watch | coordination.k8s.io | leasecandidates
[kube-system/system::leader-locking-kube-scheduler]
create get list update watch | coordination.k8s.io | leases
create get list update watch | coordination.k8s.io | leasecandidates
"""

_END_OF_SCHEDULER = "patch update | resource.k8s.io | resourceclaims/binding\n"
_SCHEDULER_OF_GROUPS = """\
read | scheduling.k8s.io | podgroups
patch update | scheduling.k8s.io | podgroups/status
"""
_SCHEDULER_OF_TAINT_RULES = "read | resource.k8s.io | devicetaintrules\n"
_BINDINGS = """
cluster-admin: Group system:masters
system:basic-user: Group system:authenticated
system:discovery: Group system:authenticated
system:kube-controller-manager: User system:kube-controller-manager
system:kube-dns: ServiceAccount kube-system/kube-dns
system:kube-scheduler: User system:kube-scheduler
system:monitoring: Group system:monitoring
system:node:
system:node-proxier: User system:kube-proxy
system:public-info-viewer: Group system:authenticated, Group system:unauthenticated
system:service-account-issuer-discovery: Group system:serviceaccounts
system:volume-scheduler: User system:kube-scheduler
kube-system/system::extension-apiserver-authentication-reader
 =extension-apiserver-authentication-reader:
 User system:kube-controller-manager, User system:kube-scheduler
kube-system/system::leader-locking-kube-controller-manager:
 User system:kube-controller-manager, ServiceAccount kube-system/kube-controller-manager,
 ServiceAccount kube-system/leader-election-controller
kube-system/system::leader-locking-kube-scheduler:
 User system:kube-scheduler, ServiceAccount kube-system/kube-scheduler
"""


def default_roles(*, workloads: bool = False, device_taint_rules: bool = False) -> Iterator[Tree]:
    """ClusterRoles and Roles; the namespace of a Role must exist first. workloads,
    device_taint_rules: with the rules of the gates GenericWorkload and DRADeviceTaintRules."""
    role: Tree = {}
    text = _ROLES
    if device_taint_rules:
        text = text.replace(_END_OF_SCHEDULER, _SCHEDULER_OF_TAINT_RULES + _END_OF_SCHEDULER)
    if workloads:
        text = text.replace(_END_OF_SCHEDULER, _END_OF_SCHEDULER + _SCHEDULER_OF_GROUPS)
    for line in _joined_lines(text):
        if line.startswith("["):
            if role:
                yield role
            role = _role(line)
        else:
            role.setdefault("rules", []).append(_rule(line))
    yield role


def default_bindings() -> Iterator[Tree]:
    """ClusterRoleBindings and RoleBindings."""
    for line in _joined_lines(_BINDINGS):
        name, _, subjects = line.rpartition(": ") if ": " in line else (line[:-1], "", "")
        name, _, role = name.replace(" =", "=").partition("=")
        namespace, slash, name = name.rpartition("/")
        kind = "Role" if slash else "ClusterRole"
        binding = _rbac_object(f"{kind}Binding", namespace, name)
        binding["roleRef"] = {"apiGroup": GROUP, "kind": kind, "name": role or name}
        if subjects:
            binding["subjects"] = [_subject(each) for each in subjects.split(", ")]
        yield binding


def _joined_lines(text: str) -> list[str]:
    return text.strip().replace("\n ", " ").split("\n")


def _rbac_object(kind: str, namespace: str, name: str) -> Tree:
    metadata: Tree = {
        "name": name,
        "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"},
    }
    if namespace:
        metadata["namespace"] = namespace
    return {"kind": kind, "apiVersion": API_VERSION, "metadata": metadata}


def _role(line: str) -> Tree:
    name, _, rest = line[1:].partition("]")
    namespace, slash, name = name.rpartition("/")
    role = _rbac_object("Role" if slash else "ClusterRole", namespace, name)
    into, _, out_of = rest.partition("from")
    for each in into.replace("to", "", 1).split():
        role["metadata"]["labels"][_aggregate(each)] = "true"
    if selected := out_of.split():
        role["aggregationRule"] = {
            "clusterRoleSelectors": [
                {"matchLabels": {_aggregate(each): "true"}} for each in selected
            ]
        }
    return role


def _aggregate(role: str) -> str:
    return f"{GROUP}/aggregate-to-{role}"


def _rule(line: str) -> Tree:
    verbs, *rest = (part.split() for part in line.split(" | "))
    verb_names = list(_VERBS.get(verbs[0], verbs))
    if len(rest) == 1:
        return {"verbs": verb_names, "nonResourceURLs": rest[0]}
    groups = ["" if group == "core" else group for group in rest[0]]
    rule: Tree = {"verbs": verb_names, "apiGroups": groups, "resources": rest[1]}
    if len(rest) > 2:
        rule["resourceNames"] = rest[2]
    return rule


def _subject(text: str) -> Tree:
    kind, name = text.split()
    if kind == "ServiceAccount":
        namespace, _, name = name.partition("/")
        return {"kind": kind, "name": name, "namespace": namespace}
    return {"kind": kind, "apiGroup": GROUP, "name": name}
