"""Defaults that depend on other fields; the plain ones stand in the tables.

Source: kubernetes v1.36, pkg/apis/{core,apps,batch,resource,rbac,discovery}/v1/defaults.go.
"""

from __future__ import annotations

import base64
from typing import Any

from stowplan.apis.schema import canonical_quantity
from stowplan.apis.schema.image_reference import image_tag
from stowplan.apis.schema.type_notation import TypeTables

Tree = dict[str, Any]

_POD_LEVEL = frozenset({"cpu", "memory"})
_HUGE_PAGES = "hugepages-"
_JOB_DEFAULTS = (("manualSelector", False), ("completionMode", "NonIndexed"), ("suspend", False))


def container(one: Tree) -> None:
    """Images without a tag, or with `latest`, are always pulled."""
    if "imagePullPolicy" not in one:
        latest = image_tag(one.get("image", "")) == "latest"
        one["imagePullPolicy"] = "Always" if latest else "IfNotPresent"


def volume(one: Tree) -> None:
    """A volume that does not say what it is, is an empty directory."""
    if len(one) == 1:
        one["emptyDir"] = {}
    image = one.get("image")
    if image is not None and "pullPolicy" not in image:
        latest = image_tag(image.get("reference", "")) == "latest"
        image["pullPolicy"] = "Always" if latest else "IfNotPresent"


def pod_spec(one: Tree) -> None:
    """Both names of the service account say the same."""
    name = one.get("serviceAccountName") or one.get("serviceAccount")
    if name:
        one["serviceAccountName"] = one["serviceAccount"] = name


def pod(one: Tree) -> None:
    """Requests from limits, ports of the host's network, links to services."""
    spec = one["spec"]
    both = (*(spec["containers"] or ()), *spec.get("initContainers", ()))
    for each in both:
        _requests_from_limits(each["resources"])
        if spec.get("hostNetwork"):
            for port in each.get("ports", ()):
                port.setdefault("hostPort", port["containerPort"])
    if "resources" in spec:
        _pod_level(spec)
    spec.setdefault("enableServiceLinks", True)


def pod_template_spec(one: Tree) -> None:
    """An empty overhead is remembered in pods only, which are refused for it."""
    if not one["spec"].get("overhead", True):
        del one["spec"]["overhead"]


def pod_status(one: Tree) -> None:
    """The one address is the first of all."""
    first, several = one.get("podIP"), one.get("podIPs")
    if first and (not several or several[0]["ip"] != first):
        one["podIPs"] = [{"ip": first}]
    elif several and not first:
        one["podIP"] = several[0]["ip"]


def node_spec(one: Tree) -> None:
    """The one range of addresses is the first of all."""
    first, several = one.get("podCIDR"), one.get("podCIDRs")
    if first and (not several or several[0] != first):
        one["podCIDRs"] = [first]
    elif several and not first:
        one["podCIDR"] = several[0]


def _requests_from_limits(resources: Tree) -> None:
    limits = resources.get("limits")
    if limits:
        requests = resources.setdefault("requests", {})
        for name, amount in limits.items():
            requests.setdefault(name, amount)


def _pod_level(spec: Tree) -> None:
    """What is asked for the pod as a whole, from its containers and its limits."""
    resources = spec["resources"]
    if resources.get("limits") or resources.get("requests"):
        limits = resources.get("limits", {})
        for name, amount in sum_container_resources(spec, "limits").items():
            huge = name.startswith(_HUGE_PAGES)
            if huge and name not in resources.get("requests", {}) and name not in limits:
                limits[name] = amount
        if limits:
            resources["limits"] = limits
    limits = resources.get("limits")
    if not limits:
        return
    requests = resources.get("requests", {})
    for name, amount in sum_container_resources(spec, "requests").items():
        if name in _POD_LEVEL:
            requests.setdefault(name, amount)
    for name, amount in limits.items():
        if name in _POD_LEVEL or name.startswith(_HUGE_PAGES):
            requests.setdefault(name, amount)
    if requests:
        resources["requests"] = requests


def sum_container_resources(spec: Tree, which: str) -> dict[str, str]:
    """What the containers ask for together: all that run side by side, or the largest of those
    that start before them with the sidecars started so far, whichever is more."""
    total: dict[str, Any] = {}
    for each in spec["containers"] or ():
        _add(total, each["resources"].get(which, {}))
    sidecars: dict[str, Any] = {}
    peak: dict[str, Any] = {}
    for each in spec.get("initContainers", ()):
        amounts = each["resources"].get(which, {})
        if each.get("restartPolicy") == "Always":
            _add(total, amounts)
            _add(sidecars, amounts)
            _raise_to_maximum(peak, sidecars)
        else:
            alone = dict(sidecars)
            _add(alone, amounts)
            _raise_to_maximum(peak, alone)
    _raise_to_maximum(total, peak)
    return {name: canonical_quantity.format_quantity(amount) for name, amount in total.items()}


def _add(total: dict[str, Any], amounts: dict[str, Any]) -> None:
    for name, given in amounts.items():
        amount = canonical_quantity.amount(given) if isinstance(given, str) else given
        total[name] = total[name] + amount if name in total else amount


def _raise_to_maximum(total: dict[str, Any], other: dict[str, Any]) -> None:
    for name, amount in other.items():
        if name not in total or amount > total[name]:
            total[name] = amount


def node_status(one: Tree) -> None:
    """What pods can have is all that there is, unless told."""
    if "allocatable" not in one and "capacity" in one:
        one["allocatable"] = dict(one["capacity"])


def namespace(one: Tree) -> None:
    """A label repeats the name."""
    name = one["metadata"].get("name")
    if name:
        one["metadata"].setdefault("labels", {})["kubernetes.io/metadata.name"] = name


def claim(one: Tree) -> None:
    """A claim waits until it has a volume."""
    one["status"].setdefault("phase", "Pending")


def service(one: Tree) -> None:
    """Ports, policies and affinity of a service."""
    spec = one["spec"]
    _affinity(spec)
    for port in spec.get("ports", ()):
        if port["targetPort"] in (0, ""):
            port["targetPort"] = port["port"]
    kind = spec["type"]
    outside = kind in ("NodePort", "LoadBalancer") or (
        kind == "ClusterIP" and bool(spec.get("externalIPs"))
    )
    if outside:
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if kind in ("NodePort", "LoadBalancer", "ClusterIP"):
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if kind == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
        for ingress in one["status"]["loadBalancer"].get("ingress", ()):
            if ingress.get("ip"):
                ingress.setdefault("ipMode", "VIP")


def _affinity(spec: Tree) -> None:
    if spec["sessionAffinity"] == "None":
        spec.pop("sessionAffinityConfig", None)
    elif spec["sessionAffinity"] == "ClientIP":
        within = spec.get("sessionAffinityConfig", {}).get("clientIP", {})
        if "timeoutSeconds" not in within:
            spec["sessionAffinityConfig"] = {"clientIP": {"timeoutSeconds": 10800}}


def replication_controller(one: Tree) -> None:
    """The labels of the template select, and stand on the controller."""
    labels = one["spec"].get("template", {}).get("metadata", {}).get("labels")
    if labels:
        if not one["spec"].get("selector"):
            one["spec"]["selector"] = dict(labels)
        if not one["metadata"].get("labels"):
            one["metadata"]["labels"] = dict(labels)


def limit_range_item(one: Tree) -> None:
    """For containers, maxima are defaults and defaults are requests."""
    if one["type"] != "Container":
        return
    default = one.setdefault("default", {})
    requests = one.setdefault("defaultRequest", {})
    for source, target in (
        (one.get("max", {}), default),
        (default, requests),
        (one.get("min", {}), requests),
    ):
        for name, amount in source.items():
            target.setdefault(name, amount)
    for name in ("default", "defaultRequest"):
        if not one[name]:
            del one[name]


def secret(one: Tree) -> None:
    """Texts given in the clear are kept in base64."""
    texts = one.pop("stringData", None)
    if texts:
        data = one.setdefault("data", {})
        for name, text in texts.items():
            data[name] = base64.b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")


def deployment_strategy(one: Tree) -> None:
    """A quarter of the pods may be missing or too many while they are replaced."""
    if one["type"] == "RollingUpdate":
        rolling = one.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", "25%")
        rolling.setdefault("maxSurge", "25%")


def daemon_strategy(one: Tree) -> None:
    """One node at a time."""
    if one["type"] == "RollingUpdate":
        rolling = one.setdefault("rollingUpdate", {})
        rolling.setdefault("maxUnavailable", 1)
        rolling.setdefault("maxSurge", 0)


def stateful_set(one: Tree) -> None:
    """Pods are replaced from the last to the first; claims stay."""
    spec = one["spec"]
    strategy = spec["updateStrategy"]
    if "type" not in strategy:
        strategy["type"] = "RollingUpdate"
        strategy.setdefault("rollingUpdate", {})
    if strategy["type"] == "RollingUpdate" and "rollingUpdate" in strategy:
        strategy["rollingUpdate"].setdefault("partition", 0)
    policy = spec.setdefault("persistentVolumeClaimRetentionPolicy", {})
    policy.setdefault("whenDeleted", "Retain")
    policy.setdefault("whenScaled", "Retain")
    # Templates are claims: Go writes their kind.
    for template in spec.get("volumeClaimTemplates", ()):
        template["kind"], template["apiVersion"] = "PersistentVolumeClaim", "v1"


def job(one: Tree) -> None:
    """One pod unless told; the labels of the template stand on the job."""
    spec = one["spec"]
    if "completions" not in spec and "parallelism" not in spec:
        spec["completions"] = 1
    spec.setdefault("parallelism", 1)
    for name, value in _JOB_DEFAULTS:
        spec.setdefault(name, value)
    per_index = "backoffLimitPerIndex" in spec
    spec.setdefault("backoffLimit", 2**31 - 1 if per_index else 6)
    failed = "podFailurePolicy" in spec
    spec.setdefault("podReplacementPolicy", "Failed" if failed else "TerminatingOrFailed")
    labels = spec["template"]["metadata"].get("labels")
    if labels and not one["metadata"].get("labels"):
        one["metadata"]["labels"] = dict(labels)


def condition_pattern(one: Tree) -> None:
    """The condition is meant to be True."""
    if not one["status"]:
        one["status"] = "True"


def device_request(one: Tree) -> None:
    """One device, where a number is asked for."""
    if one["allocationMode"] == "ExactCount":
        one.setdefault("count", 1)


def role_ref(one: Tree) -> None:
    """Roles are of this group."""
    if not one["roleRef"]["apiGroup"]:
        one["roleRef"]["apiGroup"] = "rbac.authorization.k8s.io"


def subject(one: Tree) -> None:
    """Users and groups are of this group."""
    if one["kind"] in ("User", "Group"):
        one.setdefault("apiGroup", "rbac.authorization.k8s.io")


def definition(one: Tree) -> None:
    """Names that follow from others, and where conversion is done."""
    spec = one["spec"]
    names = spec["names"]
    kind = names["kind"]
    if not names.get("singular") and kind:
        names["singular"] = kind.lower()
    if not names.get("listKind") and kind:
        names["listKind"] = f"{kind}List"
    spec.setdefault("conversion", {"strategy": "None"})
    webhook = spec["conversion"].get("webhook", {}).get("clientConfig", {}).get("service")
    if webhook is not None:
        webhook.setdefault("port", 443)
    for version in spec["versions"] or ():
        if version.get("deprecated") and "deprecationWarning" not in version:
            version["deprecationWarning"] = (
                f"{spec['group']}/{version['name']} {names['kind']} is deprecated"
            )


def install_defaults(tables: TypeTables) -> None:
    """Hang every default of this file on its type."""
    hooks: dict[str, Any] = {
        "core/v1.Container": container,
        "core/v1.EphemeralContainer": container,
        "core/v1.Volume": volume,
        "core/v1.PodSpec": pod_spec,
        "core/v1.Pod": pod,
        "core/v1.PodTemplateSpec": pod_template_spec,
        "core/v1.PodStatus": pod_status,
        "core/v1.NodeSpec": node_spec,
        "core/v1.NodeStatus": node_status,
        "core/v1.Namespace": namespace,
        "core/v1.PersistentVolumeClaim": claim,
        "core/v1.Service": service,
        "core/v1.ReplicationController": replication_controller,
        "core/v1.LimitRangeItem": limit_range_item,
        "core/v1.Secret": secret,
        "apps/v1.DeploymentStrategy": deployment_strategy,
        "apps/v1.DaemonSetUpdateStrategy": daemon_strategy,
        "apps/v1.StatefulSet": stateful_set,
        "batch/v1.Job": job,
        "batch/v1.PodFailurePolicyOnPodConditionsPattern": condition_pattern,
        "resource/v1.ExactDeviceRequest": device_request,
        "resource/v1.DeviceSubRequest": device_request,
        "rbac/v1.RoleBinding": role_ref,
        "rbac/v1.ClusterRoleBinding": role_ref,
        "rbac/v1.Subject": subject,
        "apiextensions/v1.CustomResourceDefinition": definition,
    }
    for name, hook in hooks.items():
        tables.hook(name, hook)
