"""Validation of containers: names, ports, variables, mounts, probes, resources, security.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go: validateContainers,
validateInitContainers, validateEphemeralContainers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from stowplan.apis.core import security_context
from stowplan.apis.core.probe import lifecycle, probe
from stowplan.apis.core.volume_source import env_field_reference, resource_reference
from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    not_found_field,
    not_supported,
    required,
    too_many,
)
from stowplan.apis.validation import field_checks, resource_requirements
from stowplan.objects.encoding.tree import Tree

PROTOCOLS = ("SCTP", "TCP", "UDP")
_MESSAGES = ("File", "FallbackToLogsOnError")
_PULL = ("Always", "IfNotPresent", "Never")
_RESTART = ("Always", "Never", "OnFailure")
_PROPAGATION = ("Bidirectional", "HostToContainer", "None")
_READ_ONLY = ("Disabled", "Enabled", "IfPossible")
_PROBES = ("livenessProbe", "readinessProbe", "startupProbe")
_NOT_OF_EPHEMERAL = (
    "ports", "resources", "livenessProbe", "readinessProbe", "startupProbe", "lifecycle",
)  # fmt: skip
_ONLY_SIDECARS = "may not be set for init containers without restartPolicy=Always"


@dataclass(frozen=True, slots=True)
class PodContext:
    """What the containers of a pod are checked against.

    volumes: by name. claims: names of the pod's resource claims. grace: termination grace period in
    seconds. host_users: the pod uses the user namespace of its node. os: "" if not set.
    """

    volumes: Mapping[str, Tree]
    claims: frozenset[str]
    grace: int | None
    restart: str
    host_users: bool
    os: str


def containers(given: list[Tree], around: PodContext, path: str) -> Iterator[Cause]:
    """Validation of `containers`."""
    if not given:
        yield required(path)
        return
    names: set[str] = set()
    for at, one in enumerate(given):
        here = f"{path}[{at}]"
        yield from _any_container(one, around, here)
        yield from field_checks.unique(one["name"], names, f"{here}.name")
        yield from _lifecycle_and_probes(one, around, here)
        yield from _restart_policy(one, here)
    yield from _host_ports(given, path)


def init_containers(
    given: list[Tree], regular: list[Tree], around: PodContext, path: str
) -> Iterator[Cause]:
    """Validation of `initContainers`."""
    names = {one["name"] for one in regular}
    for at, one in enumerate(given):
        here = f"{path}[{at}]"
        yield from _any_container(one, around, here)
        yield from _restart_policy(one, here)
        if one["name"] in names:
            yield duplicate(f"{here}.name", one["name"])
        elif one["name"]:
            names.add(one["name"])
        yield from _host_ports([one], path)
        sidecar = one.get("restartPolicy") == "Always"
        if sidecar:
            yield from _lifecycle_and_probes(one, around, here)
        else:
            for name in ("lifecycle", *_PROBES):
                if name in one:
                    yield forbidden_field(f"{here}.{name}", _ONLY_SIDECARS)
            for index, policy in enumerate(one.get("resizePolicy", ())):
                if policy["restartPolicy"] == "RestartContainer":
                    yield invalid(
                        f"{here}.resizePolicy[{index}].restartPolicy",
                        "RestartContainer",
                        "must not be set to 'RestartContainer' for non-sidecar initContainers",
                    )


def ephemeral_containers(
    given: list[Tree], others: list[Tree], around: PodContext, path: str
) -> Iterator[Cause]:
    """Validation of `ephemeralContainers`."""
    known = {one["name"] for one in others}
    names = set(known)
    for at, one in enumerate(given):
        here = f"{path}[{at}]"
        yield from _any_container(one, around, here)
        yield from trimmed_image(one, here)
        yield from field_checks.unique(one["name"], names, f"{here}.name")
        target = one.get("targetContainerName", "")
        if target and target not in known:
            yield not_found_field(f"{here}.targetContainerName", target)
        for name in _NOT_OF_EPHEMERAL:
            if one.get(name):
                yield forbidden_field(f"{here}.{name}", "cannot be set for an Ephemeral Container")


def trimmed_image(one: Tree, path: str) -> Iterator[Cause]:
    """The image name has no leading or trailing blanks."""
    image = one.get("image", "")
    if image != image.strip():
        yield invalid(f"{path}.image", image, "must not have leading or trailing whitespace")


def _any_container(one: Tree, around: PodContext, path: str) -> Iterator[Cause]:
    yield from field_checks.needed(one["name"], field_checks.dns_label, f"{path}.name")
    if not one.get("image"):
        yield required(f"{path}.image")
    yield from field_checks.one_of(
        one["terminationMessagePolicy"], _MESSAGES, f"{path}.terminationMessagePolicy"
    )
    if "ports" in one:
        yield from _ports(one["ports"], f"{path}.ports")
    if "env" in one:
        yield from _env(one["env"], f"{path}.env")
    if "envFrom" in one:
        yield from _env_from(one["envFrom"], f"{path}.envFrom")
    if "volumeMounts" in one:
        yield from _mounts(one, around.volumes, f"{path}.volumeMounts")
    if "volumeDevices" in one:
        yield from _devices(one, around.volumes, f"{path}.volumeDevices")
    yield from field_checks.one_of(one["imagePullPolicy"], _PULL, f"{path}.imagePullPolicy")
    if one["resources"]:
        yield from resource_requirements.validate_resource_requirements(
            one["resources"], around.claims, f"{path}.resources"
        )
    if "resizePolicy" in one:
        yield from _resize(one["resizePolicy"], around.restart, f"{path}.resizePolicy")
    if "securityContext" in one:
        yield from security_context.container_security_context(
            one["securityContext"], around.host_users, f"{path}.securityContext"
        )


def _lifecycle_and_probes(one: Tree, around: PodContext, path: str) -> Iterator[Cause]:
    if "lifecycle" in one:
        yield from lifecycle(one["lifecycle"], around.grace, around.os, f"{path}.lifecycle")
    for name in _PROBES:
        if name in one:
            yield from probe(name, one[name], f"{path}.{name}")


def _ports(given: list[Tree], path: str) -> Iterator[Cause]:
    names: set[str] = set()
    for at, one in enumerate(given):
        here = f"{path}[{at}]"
        name = one.get("name", "")
        if name:
            wrong = list(field_checks.port_name(name, f"{here}.name"))
            yield from wrong
            if not wrong and name in names:
                yield duplicate(f"{here}.name", name)
            elif not wrong:
                names.add(name)
        if one["containerPort"] == 0:
            yield required(f"{here}.containerPort")
        else:
            yield from field_checks.port_number(one["containerPort"], f"{here}.containerPort")
        if one.get("hostPort"):
            yield from field_checks.port_number(one["hostPort"], f"{here}.hostPort")
        yield from field_checks.one_of(one["protocol"], PROTOCOLS, f"{here}.protocol")


def _host_ports(given: Iterable[Tree], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for at, one in enumerate(given):
        for index, port in enumerate(one.get("ports", ())):
            if not port.get("hostPort"):
                continue
            text = f"{port['protocol']}/{port.get('hostIP', '')}/{port['hostPort']}"
            yield from field_checks.unique(text, seen, f"{path}[{at}].ports[{index}].hostPort")


def _env(given: list[Tree], path: str) -> Iterator[Cause]:
    for at, one in enumerate(given):
        here = f"{path}[{at}]"
        yield from field_checks.needed(one["name"], field_checks.env_name, f"{here}.name")
        if "valueFrom" in one:
            yield from _value_from(one, f"{here}.valueFrom")


def _value_from(one: Tree, path: str) -> Iterator[Cause]:
    source = one["valueFrom"]
    if "fieldRef" in source:
        yield from env_field_reference(source["fieldRef"], f"{path}.fieldRef")
    if "resourceFieldRef" in source:
        yield from resource_reference(source["resourceFieldRef"], f"{path}.resourceFieldRef")
    for name in ("configMapKeyRef", "secretKeyRef"):
        if name in source:
            yield from _key_reference(source[name], f"{path}.{name}")
    if not source:
        yield invalid(
            path,
            "",
            "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef`, "
            "`secretKeyRef` or `fileKeyRef`",
        )
    elif one.get("value"):
        yield invalid(path, "", "may not be specified when `value` is not empty")
    elif len(source) > 1:
        yield invalid(path, "", "may not have more than one field specified at a time")


def _key_reference(one: Tree, path: str) -> Iterator[Cause]:
    yield from field_checks.dns_subdomain(one.get("name", ""), f"{path}.name")
    yield from field_checks.needed(one["key"], field_checks.config_key, f"{path}.key")


def _env_from(given: list[Tree], path: str) -> Iterator[Cause]:
    for at, one in enumerate(given):
        here = f"{path}[{at}]"
        if one.get("prefix"):
            yield from field_checks.env_name(one["prefix"], f"{here}.prefix")
        sources = [name for name in ("configMapRef", "secretRef") if name in one]
        for name in sources:
            called = one[name].get("name", "")
            yield from field_checks.needed(
                called, field_checks.dns_subdomain, f"{here}.{name}.name"
            )
        if not sources:
            yield invalid(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(sources) > 1:
            yield invalid(path, "", "may not have more than one field specified at a time")


def _mounts(one: Tree, volumes: Mapping[str, Tree], path: str) -> Iterator[Cause]:
    devices = {device["name"]: device["devicePath"] for device in one.get("volumeDevices", ())}
    device_paths = frozenset(devices.values())
    paths: set[str] = set()
    for at, mount in enumerate(one["volumeMounts"]):
        here = f"{path}[{at}]"
        name, target = mount["name"], mount["mountPath"]
        if not name:
            yield required(f"{here}.name")
        if name not in volumes:
            yield not_found_field(f"{here}.name", name)
        if not target:
            yield required(f"{here}.mountPath")
        if target in paths:
            yield invalid(f"{here}.mountPath", target, "must be unique")
        paths.add(target)
        if name in devices:
            yield invalid(f"{here}.name", name, "must not already exist in volumeDevices")
        if target in device_paths:
            text = "must not already exist as a path in volumeDevices"
            yield invalid(f"{here}.mountPath", target, text)
        yield from _mount_options(one, mount, here, path)


def _mount_options(one: Tree, mount: Tree, here: str, path: str) -> Iterator[Cause]:
    # The original does not index the options of a mount.
    below, expression = mount.get("subPath", ""), mount.get("subPathExpr", "")
    if below:
        yield from field_checks.local_descending_path(below, f"{path}.subPath")
    if expression:
        if below:
            text = "subPathExpr and subPath are mutually exclusive"
            yield invalid(f"{here}.subPathExpr", expression, text)
        yield from field_checks.local_descending_path(expression, f"{path}.subPathExpr")
    spread = mount.get("mountPropagation")
    if spread is not None:
        yield from field_checks.one_of(spread, _PROPAGATION, f"{path}.mountPropagation")
        if spread == "Bidirectional" and not one.get("securityContext", {}).get("privileged"):
            text = "Bidirectional mount propagation is available only to privileged containers"
            yield forbidden_field(f"{path}.mountPropagation", text)
    read_only = mount.get("recursiveReadOnly")
    if read_only in ("Enabled", "IfPossible"):
        if not mount.get("readOnly"):
            text = "may only be specified when readOnly is true"
            yield forbidden_field(f"{path}.recursiveReadOnly", text)
        if spread not in (None, "None"):
            text = "may only be specified when mountPropagation is None or not specified"
            yield forbidden_field(f"{path}.recursiveReadOnly", text)
    elif read_only not in (None, "Disabled"):
        yield not_supported(f"{path}.recursiveReadOnly", read_only, _READ_ONLY)


def _devices(one: Tree, volumes: Mapping[str, Tree], path: str) -> Iterator[Cause]:
    mounts = {mount["name"]: mount["mountPath"] for mount in one.get("volumeMounts", ())}
    mount_paths = frozenset(mounts.values())
    names: set[str] = set()
    paths: set[str] = set()
    for at, device in enumerate(one["volumeDevices"]):
        here = f"{path}[{at}]"
        name, target = device["name"], device["devicePath"]
        volume = volumes.get(name)
        if not name:
            yield required(f"{here}.name")
        if name in names:
            yield invalid(f"{here}.name", name, "must be unique")
        if volume is None:
            yield not_found_field(f"{here}.name", name)
        elif "persistentVolumeClaim" not in volume and "ephemeral" not in volume:
            text = (
                "can only use volume source type of PersistentVolumeClaim or Ephemeral for block "
                "mode"
            )
            yield invalid(f"{here}.name", name, text)
        if not target:
            yield required(f"{here}.devicePath")
        if target in paths:
            yield invalid(f"{here}.devicePath", target, "must be unique")
        if ".." in target.split("/"):
            yield invalid(f"{here}.devicePath", target, "can not contain backsteps ('..')")
        else:
            paths.add(target)
        if name in mounts:
            yield invalid(f"{here}.name", name, "must not already exist in volumeMounts")
        if target in mount_paths:
            text = "must not already exist as a path in volumeMounts"
            yield invalid(f"{here}.devicePath", target, text)
        names.add(name)


def _resize(given: list[Tree], pod_restart: str, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for at, one in enumerate(given):
        name, action = one["resourceName"], one["restartPolicy"]
        yield from field_checks.unique(name, seen, f"{path}[{at}]")
        yield from field_checks.supported_value(name, ("cpu", "memory"), path)
        yield from field_checks.supported_value(action, ("NotRequired", "RestartContainer"), path)
        if pod_restart == "Never" and action != "NotRequired":
            yield invalid(path, action, "must be 'NotRequired' when pod `restartPolicy` is 'Never'")


def _restart_policy(one: Tree, path: str) -> Iterator[Cause]:
    policy = one.get("restartPolicy")
    rules = one.get("restartPolicyRules", [])
    if policy is None:
        if rules:
            text = "must specify restartPolicy when restart rules are used"
            yield required(f"{path}.restartPolicy", text)
    elif policy not in _RESTART:
        yield not_supported(f"{path}.restartPolicy", policy, _RESTART)
    if len(rules) > 20:
        yield too_many(f"{path}.restartPolicyRules", len(rules), 20)
    for at, rule in enumerate(rules):
        here = f"{path}.restartPolicyRules[{at}]"
        if rule.get("action", "") != "Restart":
            yield not_supported(f"{here}.action", rule.get("action", ""), ["Restart"])
        codes = rule.get("exitCodes")
        if codes is None:
            yield required(f"{here}.exitCodes", "must be specified")
            continue
        yield from field_checks.one_of(
            codes.get("operator", ""), ("In", "NotIn"), f"{here}.exitCodes.operator"
        )
        if len(codes.get("values", ())) > 255:
            yield too_many(f"{here}.exitCodes.values", len(codes["values"]), 255)
