"""Validation of the spec of pods and pod templates.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go: ValidatePodSpec.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.core import pod_scheduling, security_context
from stowplan.apis.core.container import (
    PodContext,
    containers,
    ephemeral_containers,
    init_containers,
    trimmed_image,
)
from stowplan.apis.core.pod_defaults import sum_container_resources
from stowplan.apis.core.pod_deletion_cost import ANNOTATION as DELETION_COST
from stowplan.apis.core.pod_deletion_cost import deletion_cost
from stowplan.apis.core.volume_source import volumes
from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
)
from stowplan.apis.machinery.names import subdomain_problems
from stowplan.apis.schema import canonical_quantity
from stowplan.apis.validation import field_checks, resource_requirements
from stowplan.objects.encoding.tree import Tree

RESTART_POLICIES = ("Always", "OnFailure", "Never")
DNS_POLICIES = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")


def pod_spec(spec: Tree, meta: Tree | None, path: str, is_pod: bool) -> Iterator[Cause]:
    """The spec. meta: of the pod, None in templates. is_pod: False for templates."""
    name = (meta or {}).get("name", "")
    known, wrong = volumes(spec.get("volumes", []), name, f"{path}.volumes")
    yield from wrong
    around = _pod_context(spec, known)
    if "resourceClaims" in spec:
        yield from _claims(spec["resourceClaims"], meta, f"{path}.resourceClaims")
    regular = spec["containers"] or []
    yield from containers(regular, around, f"{path}.containers")
    initial = spec.get("initContainers", [])
    yield from init_containers(initial, regular, around, f"{path}.initContainers")
    if "ephemeralContainers" in spec:
        yield from ephemeral_containers(
            spec["ephemeralContainers"], regular + initial, around, f"{path}.ephemeralContainers"
        )
    if "resources" in spec:
        yield from _pod_level(spec, around.claims, path)
    if spec.get("hostNetwork"):
        yield from _host_network(regular, f"{path}.containers", is_pod)
    yield from field_checks.one_of(spec["restartPolicy"], RESTART_POLICIES, f"{path}.restartPolicy")
    yield from field_checks.one_of(spec["dnsPolicy"], DNS_POLICIES, f"{path}.dnsPolicy")
    yield from field_checks.labels(spec.get("nodeSelector", {}), f"{path}.nodeSelector")
    if spec["securityContext"] or spec.get("hostPID"):
        yield from security_context.pod_security_context(
            spec["securityContext"], spec, f"{path}.securityContext"
        )
    if "affinity" in spec:
        yield from pod_scheduling.affinity(spec["affinity"], f"{path}.affinity")
    yield from _dns(spec.get("dnsConfig"), spec["dnsPolicy"], f"{path}.dnsConfig")
    for at, gate in enumerate(spec.get("readinessGates", ())):
        here = f"{path}.readinessGates[{at}].conditionType"
        yield from field_checks.qualified_name(gate["conditionType"], here)
    if "schedulingGates" in spec:
        yield from pod_scheduling.scheduling_gates(
            spec["schedulingGates"], f"{path}.schedulingGates"
        )
    if "topologySpreadConstraints" in spec:
        yield from pod_scheduling.topology_spread_constraints(
            spec["topologySpreadConstraints"], f"{path}.topologySpreadConstraints"
        )
    if "schedulingGroup" in spec:
        name, here = spec["schedulingGroup"].get("podGroupName"), f"{path}.schedulingGroup"
        if name is None:
            text = "must specify one of: `podGroupName`"
            yield invalid(f"{here}.podGroupName", None, text)
        else:
            yield from field_checks.dns_subdomain(name, f"{here}.podGroupName")
    yield from security_context.host_users(spec, path)
    yield from _names(spec, path)
    yield from _other_fields(spec, path)


def _pod_context(spec: Tree, known: dict[str, Tree]) -> PodContext:
    return PodContext(
        volumes=known,
        claims=frozenset(one["name"] for one in spec.get("resourceClaims", ()) if one["name"]),
        grace=spec.get("terminationGracePeriodSeconds"),
        restart=spec["restartPolicy"],
        host_users=spec.get("hostUsers", True),
        os=spec.get("os", {}).get("name", ""),
    )


def _claims(given: list[Tree], meta: Tree | None, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for at, one in enumerate(given):
        here = f"{path}[{at}]"
        if not one["name"]:
            yield required(f"{here}.name")
        elif one["name"] in seen:
            yield duplicate(f"{here}.name", one["name"])
        else:
            yield from field_checks.dns_label(one["name"], f"{here}.name")
            seen.add(one["name"])
        by_name, template = one.get("resourceClaimName"), one.get("resourceClaimTemplateName")
        printed = {
            "Name": one["name"],
            "ResourceClaimName": by_name,
            "ResourceClaimTemplateName": template,
        }
        if by_name is not None and template is not None:
            text = (
                "at most one of `resourceClaimName` or `resourceClaimTemplateName` may be specified"
            )
            yield invalid(here, printed, text)
        if by_name is None and template is None:
            text = "must specify one of: `resourceClaimName`, `resourceClaimTemplateName`"
            yield invalid(here, printed, text)
        for field, value in (
            ("resourceClaimName", by_name),
            ("resourceClaimTemplateName", template),
        ):
            if value is not None:
                yield from field_checks.dns_subdomain(value, f"{here}.{field}")


def _pod_level(spec: Tree, claims: frozenset[str], path: str) -> Iterator[Cause]:
    resources, here = spec["resources"], f"{path}.resources"
    if spec.get("os", {}).get("name") == "windows":
        yield forbidden_field(here, "may not be set for a windows pod")
        return
    if "claims" in resources:
        yield forbidden_field(f"{here}.claims", "claims may not be set for Resources at pod-level")
    yield from resource_requirements.validate_resource_requirements(
        resources, claims, here, resource_requirements.validate_pod_resource_name
    )
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    for name, total in sorted(sum_container_resources(spec, "requests").items()):
        if name in requests and canonical_quantity.compare(total, requests[name]) > 0:
            text = f"must be greater than or equal to aggregate container requests of {total}"
            yield invalid(f"{here}.requests[{name}]", requests[name], text)
    for name, total in sorted(sum_container_resources(spec, "limits").items()):
        huge = resource_requirements.is_huge_page_resource(name) and name in limits
        if huge and canonical_quantity.compare(total, limits[name]) > 0:
            text = f"must be greater than or equal to aggregate container limits of {total}"
            yield invalid(f"{here}.limits[{name}]", limits[name], text)
    for at, one in enumerate(spec["containers"] or ()):
        for name, limit in sorted(one["resources"].get("limits", {}).items()):
            if name in limits and canonical_quantity.compare(limit, limits[name]) > 0:
                text = f"must be less than or equal to pod limits of {limits[name]}"
                yield invalid(f"{here}.containers[{at}][{name}].limits", limit, text)


def _host_network(given: list[Tree], path: str, is_pod: bool) -> Iterator[Cause]:
    for at, one in enumerate(given):
        for index, port in enumerate(one.get("ports", ())):
            host = port.get("hostPort", 0)
            if (is_pod or host) and host != port["containerPort"]:
                yield invalid(
                    f"{path}[{at}].ports[{index}].hostPort",
                    host,
                    "must match `containerPort` when `hostNetwork` is true",
                )


def _dns(config: Tree | None, policy: str, path: str) -> Iterator[Cause]:
    servers = (config or {}).get("nameservers", [])
    if policy == "None":
        if config is None:
            yield required(path, "must provide `dnsConfig` when `dnsPolicy` is None")
            return
        if not servers:
            text = "must provide at least one DNS nameserver when `dnsPolicy` is None"
            yield required(f"{path}.nameservers", text)
            return
    if config is None:
        return
    if len(servers) > 3:
        yield invalid(f"{path}.nameservers", servers, "must not have more than 3 nameservers")
    for at, server in enumerate(servers):
        yield from field_checks.address(server, f"{path}.nameservers[{at}]")
    searches = config.get("searches", [])
    if len(searches) > 32:
        yield invalid(f"{path}.searches", searches, "must not have more than 32 search paths")
    if len(" ".join(searches)) > 2048:
        text = "must not have more than 2048 characters (including spaces) in the search list"
        yield invalid(f"{path}.searches", searches, text)
    for at, search in enumerate(searches):
        if search != ".":
            plain = search.removesuffix(".").replace("_", "a")
            if subdomain_problems(plain):
                yield from field_checks.dns_subdomain(
                    search.removesuffix("."), f"{path}.searches[{at}]"
                )
    for at, option in enumerate(config.get("options", ())):
        if not option.get("name"):
            yield required(f"{path}.options[{at}]", "must not be empty")


def _names(spec: Tree, path: str) -> Iterator[Cause]:
    override = spec.get("hostnameOverride")
    here = f"{path}.hostnameOverride"
    if override is not None:
        if spec.get("setHostnameAsFQDN"):
            yield forbidden_field(here, "may not be specified when setHostnameAsFQDN is true")
        if spec.get("hostNetwork"):
            yield forbidden_field(here, "may not be specified when hostNetwork is true")
        if len(override) > 64:
            yield Cause(here, "FieldValueTooLong", "Too long: may not be more than 64 bytes")
        yield from field_checks.dns_subdomain(override, here)
    for name in ("serviceAccountName", "nodeName"):
        if spec.get(name):
            yield from field_checks.dns_subdomain(spec[name], f"{path}.{name}")
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= field_checks.INT32_MAX:
        text = field_checks.inclusive(1, field_checks.INT32_MAX)
        yield invalid(f"{path}.activeDeadlineSeconds", deadline, text)
    for name in ("hostname", "subdomain"):
        if spec.get(name):
            yield from field_checks.dns_label(spec[name], f"{path}.{name}")


def _other_fields(spec: Tree, path: str) -> Iterator[Cause]:
    if "tolerations" in spec:
        yield from pod_scheduling.tolerations(spec["tolerations"], f"{path}.tolerations")
    for at, alias in enumerate(spec.get("hostAliases", ())):
        here = f"{path}.hostAliases[{at}]"
        yield from field_checks.address(alias["ip"], f"{here}.ip")
        for index, name in enumerate(alias.get("hostnames", ())):
            yield from field_checks.dns_subdomain(name, f"{here}.hostnames[{index}]")
    if spec.get("priorityClassName"):
        yield from field_checks.dns_subdomain(
            spec["priorityClassName"], f"{path}.priorityClassName"
        )
    if "runtimeClassName" in spec:
        yield from field_checks.dns_subdomain(spec["runtimeClassName"], f"{path}.runtimeClassName")
    if "preemptionPolicy" in spec:
        policies = ("PreemptLowerPriority", "Never")
        yield from field_checks.supported_value(
            spec["preemptionPolicy"], policies, f"{path}.preemptionPolicy"
        )
    for name, value in sorted(spec.get("overhead", {}).items()):
        yield from resource_requirements.validate_container_resource_name(
            name, f"{path}.overhead[{name}]"
        )
        yield from resource_requirements.validate_resource_quantity(
            name, value, f"{path}.overhead[{name}]"
        )
    if "os" in spec:
        yield from _os(spec["os"]["name"], spec, path)


def _os(name: str, spec: Tree, path: str) -> Iterator[Cause]:
    if not name:
        yield required(f"{path}.os.name")
    elif name not in ("linux", "windows"):
        yield not_supported(f"{path}.os", name, ["linux", "windows"])
    elif name == "linux" and "windowsOptions" in spec["securityContext"]:
        yield forbidden_field(
            f"{path}.securityContext.windowsOptions",
            "windows options cannot be set for a linux pod",
        )


def pod_annotations(meta: Tree, path: str) -> Iterator[Cause]:
    """Annotations of pods and templates that are validated.

    Source: ValidatePodSpecificAnnotations.
    """
    annotations = meta.get("annotations", {})
    if deletion_cost(annotations) is None:
        value = annotations[DELETION_COST]
        yield invalid(f"{path}[{DELETION_COST}]", value, "must be a 32bit integer")


def trimmed_images(spec: Tree, path: str) -> Iterator[Cause]:
    """Images without leading or trailing blanks; checked for pods only."""
    for kind in ("containers", "initContainers"):
        for at, one in enumerate(spec.get(kind) or ()):
            yield from trimmed_image(one, f"{path}.{kind}[{at}]")
