"""Validation of security contexts.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go: ValidateSecurityContext,
validatePodSpecSecurityContext.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from stowplan.apis.machinery.errors import (
    Cause,
    duplicate,
    forbidden_field,
    invalid,
    not_supported,
    required,
)
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

_SEGMENT = "[a-z0-9]([-_a-z0-9]*[a-z0-9])?"
_SYSCTL_TEXT = rf"^({_SEGMENT}[\./])*{_SEGMENT}$"
_SYSCTL = re.compile(_SYSCTL_TEXT)
_PROFILES = ("Localhost", "RuntimeDefault", "Unconfined")


def pod_security_context(one: Tree, spec: Tree, path: str) -> Iterator[Cause]:
    """The security context of a pod."""
    for name in ("fsGroup", "runAsUser", "runAsGroup"):
        yield from field_checks.user_id(one.get(name), f"{path}.{name}")
    for at, group in enumerate(one.get("supplementalGroups", ())):
        yield from field_checks.user_id(group, f"{path}.supplementalGroups[{at}]")
    if spec.get("shareProcessNamespace") and spec.get("hostPID"):
        text = "ShareProcessNamespace and HostPID cannot both be enabled"
        yield invalid(f"{path}.shareProcessNamespace", True, text)
    yield from _sysctls(one.get("sysctls", []), spec, f"{path}.sysctls")
    change = one.get("fsGroupChangePolicy")
    yield from field_checks.one_of(
        change, ("Always", "OnRootMismatch"), f"{path}.fsGroupChangePolicy"
    )
    yield from _profiles(one, path)
    policy = one.get("supplementalGroupsPolicy")
    yield from field_checks.one_of(policy, ("Merge", "Strict"), f"{path}.supplementalGroupsPolicy")
    relabel = one.get("seLinuxChangePolicy")
    yield from field_checks.one_of(
        relabel, ("MountOption", "Recursive"), f"{path}.seLinuxChangePolicy"
    )


def container_security_context(one: Tree, host_users: bool, path: str) -> Iterator[Cause]:
    """The security context of a container. Privileged is allowed, as on the recorded server."""
    for name in ("runAsUser", "runAsGroup"):
        yield from field_checks.user_id(one.get(name), f"{path}.{name}")
    mount = one.get("procMount")
    if mount is not None:
        yield from field_checks.one_of(mount, ("Default", "Unmasked"), f"{path}.procMount")
        if host_users and mount == "Unmasked":
            yield invalid(f"{path}.procMount", mount, "`hostUsers` must be false to use `Unmasked`")
    if one.get("allowPrivilegeEscalation") is False:
        # The original prints the whole context in its internal form; path and reason are the same.
        if one.get("privileged"):
            text = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
            yield invalid(path, one, text)
        if "CAP_SYS_ADMIN" in one.get("capabilities", {}).get("add", ()):
            text = (
                "cannot set `allowPrivilegeEscalation` to false and `capabilities.Add` "
                "CAP_SYS_ADMIN"
            )
            yield invalid(path, one, text)
    yield from _profiles(one, path)


def _profiles(one: Tree, path: str) -> Iterator[Cause]:
    if "seccompProfile" in one:
        yield from _seccomp(one["seccompProfile"], f"{path}.seccompProfile")
    if "appArmorProfile" in one:
        yield from _app_armor(one["appArmorProfile"], f"{path}.appArmorProfile")


def _seccomp(one: Tree, path: str) -> Iterator[Cause]:
    kind, local = one["type"], one.get("localhostProfile")
    if not kind:
        yield required(f"{path}.type", "type is required when seccompProfile is set")
    elif kind not in _PROFILES:
        yield not_supported(f"{path}.type", kind, _PROFILES)
    if kind == "Localhost":
        if local is None:
            yield required(f"{path}.localhostProfile", "must be set when seccomp type is Localhost")
        else:
            yield from field_checks.local_descending_path(local, f"{path}.localhostProfile")
    elif local is not None:
        printed = {"Type": kind, "LocalhostProfile": local}
        text = "can only be set when seccomp type is Localhost"
        yield invalid(f"{path}.localhostProfile", printed, text)


def _app_armor(one: Tree, path: str) -> Iterator[Cause]:
    kind, local = one["type"], one.get("localhostProfile")
    here = f"{path}.localhostProfile"
    if kind == "Localhost":
        if not (local or "").strip():
            yield required(here, "must be set when AppArmor type is Localhost")
        elif local != (local or "").strip():
            yield invalid(here, local, "must not be padded with whitespace")
    elif kind in _PROFILES:
        if local is not None:
            yield invalid(here, local, "can only be set when AppArmor type is Localhost")
    elif not kind:
        yield required(f"{path}.type", "type is required when appArmorProfile is set")
    else:
        yield not_supported(f"{path}.type", kind, _PROFILES)


def _sysctls(given: list[Tree], spec: Tree, path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for at, one in enumerate(given):
        name, here = one["name"], f"{path}[{at}].name"
        if not name:
            yield required(here)
        elif len(name) > 253 or not _SYSCTL.fullmatch(name):
            text = f"must have at most 253 characters and match regex {_SYSCTL_TEXT}"
            yield invalid(here, name, text)
        elif name in seen:
            yield duplicate(here, name)
        plain = name.replace("/", ".")
        if spec.get("hostNetwork") and plain.startswith("net."):
            yield invalid(here, name, "may not be specified when 'hostNetwork' is true")
        elif spec.get("hostIPC") and plain.startswith(
            ("kernel.shm", "kernel.msg", "kernel.sem", "fs.mqueue.")
        ):
            yield invalid(here, name, "may not be specified when 'hostIPC' is true")
        seen.add(name)


def host_users(spec: Tree, path: str) -> Iterator[Cause]:
    """A pod with hostUsers=false cannot share host namespaces."""
    if spec.get("hostUsers", True):
        return
    for name, printed in (
        ("hostNetwork", "hostNetwork"),
        ("hostPID", "HostPID"),
        ("hostIPC", "HostIPC"),
    ):
        if spec.get(name):
            yield forbidden_field(f"{path}.{printed}", "when `hostUsers` is false")
    for kind in ("initContainers", "containers"):
        for at, one in enumerate(spec.get(kind) or ()):
            if one.get("volumeDevices"):
                here = f"{path}.{kind}[{at}].volumeDevices"
                yield forbidden_field(here, "when `hostUsers` is false")
