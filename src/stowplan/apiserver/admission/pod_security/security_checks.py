"""What pods may ask for at each level.

Source: kubernetes v1.36, pod-security-admission/policy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import NamedTuple

from stowplan.apiserver.admission.pod_security.security_policy import (
    PRIVILEGED,
    RESTRICTED,
    LeveledVersion,
)
from stowplan.objects.encoding.tree import Tree

MAX_MINOR = 35
"""The last version that has changed a rule."""
_CAPABILITIES = {
    "AUDIT_WRITE", "CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "MKNOD",
    "NET_BIND_SERVICE", "SETFCAP", "SETGID", "SETPCAP", "SETUID", "SYS_CHROOT",
}  # fmt: skip
_SYSCTLS = {
    "kernel.shm_rmid_forced": 0, "net.ipv4.ip_local_port_range": 0,
    "net.ipv4.tcp_syncookies": 0, "net.ipv4.ping_group_range": 0,
    "net.ipv4.ip_unprivileged_port_start": 0, "net.ipv4.ip_local_reserved_ports": 27,
    "net.ipv4.tcp_keepalive_time": 29, "net.ipv4.tcp_fin_timeout": 29,
    "net.ipv4.tcp_keepalive_intvl": 29, "net.ipv4.tcp_keepalive_probes": 29,
    "net.ipv4.tcp_rmem": 32, "net.ipv4.tcp_wmem": 32,
}  # fmt: skip
"""Allowed names, and the minor version since which they are."""
_VOLUME_TYPES = {
    "configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim",
    "projected", "secret",
}  # fmt: skip
_SELINUX_TYPES = {
    "": 0, "container_t": 0, "container_init_t": 0, "container_kvm_t": 0, "container_engine_t": 31,
}  # fmt: skip
_APPARMOR_KEY = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_KEY = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER_KEY = "container.seccomp.security.alpha.kubernetes.io/"
_NAMED_PROFILES = ("RuntimeDefault", "Localhost")


class ForbiddenSetting(NamedTuple):
    """A setting that a pod asks for and may not have. reason: in short."""

    reason: str
    detail: str


class _CheckedPod(NamedTuple):
    """A pod or a template. minor: the version of the rules."""

    annotations: Tree
    spec: Tree
    minor: int

    @property
    def context(self) -> Tree:
        return self.spec.get("securityContext") or {}

    @property
    def containers(self) -> list[Tree]:
        kinds = ("initContainers", "containers", "ephemeralContainers")
        return [one for kind in kinds for one in self.spec.get(kind) or ()]

    @property
    def is_windows(self) -> bool:
        return self.minor >= 25 and (self.spec.get("os") or {}).get("name") == "windows"

    @property
    def has_own_users(self) -> bool:
        return self.minor >= 35 and self.spec.get("hostUsers") is False

    def contexts(self) -> list[tuple[str, Tree]]:
        """Names and security contexts of the containers."""
        return [(one["name"], one.get("securityContext") or {}) for one in self.containers]


def _quoted(names: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in names)


def _some(word: str, n: int) -> str:
    return word if n == 1 else f"{word}s"


def _containers(names: Sequence[str]) -> str:
    return f"{_some('container', len(names))} {_quoted(names)}"


def _setters(is_pod: bool, names: Sequence[str]) -> str:
    found = ["pod"] * is_pod + ([_containers(names)] if names else [])
    return " and ".join(found)


def violations(wanted: LeveledVersion, meta: Tree, spec: Tree) -> list[ForbiddenSetting]:
    """What a pod or template asks for and may not at a level."""
    if wanted.level == PRIVILEGED:
        return []
    minor = min(wanted.minor, MAX_MINOR)
    pod = _CheckedPod(meta.get("annotations") or {}, spec, minor)
    return [found for check in _checks(wanted.level, minor) if (found := check(pod)) is not None]


def detail_text(found: Sequence[ForbiddenSetting]) -> str:
    """Reasons with their details."""
    return ", ".join(f"{one.reason} ({one.detail})" if one.detail else one.reason for one in found)


def reason_text(found: Sequence[ForbiddenSetting]) -> str:
    """Reasons alone."""
    return ", ".join(one.reason for one in found)


# Baseline


def _host_namespaces(pod: _CheckedPod) -> ForbiddenSetting | None:
    names = [name for name in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(name)]
    detail = ", ".join(f"{name}=true" for name in names)
    return ForbiddenSetting("host namespaces", detail) if names else None


def _privileged(pod: _CheckedPod) -> ForbiddenSetting | None:
    bad = [name for name, context in pod.contexts() if context.get("privileged")]
    text = f"{_containers(bad)} must not set securityContext.privileged=true"
    return ForbiddenSetting("privileged", text) if bad else None


def _capabilities(pod: _CheckedPod) -> ForbiddenSetting | None:
    bad, found = [], set()
    for name, context in pod.contexts():
        added = set((context.get("capabilities") or {}).get("add") or ()) - _CAPABILITIES
        if added:
            bad.append(name)
            found |= added
    text = (
        f"{_containers(bad)} must not include {_quoted(sorted(found))} in"
        " securityContext.capabilities.add"
    )
    return ForbiddenSetting("non-default capabilities", text) if bad else None


def _host_path_volumes(pod: _CheckedPod) -> ForbiddenSetting | None:
    names = [one["name"] for one in pod.spec.get("volumes") or () if "hostPath" in one]
    text = f"{_some('volume', len(names))} {_quoted(names)}"
    return ForbiddenSetting("hostPath volumes", text) if names else None


def _host_ports(pod: _CheckedPod) -> ForbiddenSetting | None:
    bad, ports = [], set()
    for one in pod.containers:
        found = {str(port["hostPort"]) for port in one.get("ports") or () if port.get("hostPort")}
        if found:
            bad.append(one["name"])
            ports |= found
    use, word = "uses" if len(bad) == 1 else "use", _some("hostPort", len(ports))
    text = f"{_containers(bad)} {use} {word} {', '.join(sorted(ports))}"
    return ForbiddenSetting("hostPort", text) if bad else None


def _host_probes(pod: _CheckedPod) -> ForbiddenSetting | None:
    bad, hosts = set(), set()
    for one in pod.containers:
        lifecycle = one.get("lifecycle") or {}
        handlers = [one.get(f"{kind}Probe") for kind in ("liveness", "readiness", "startup")]
        handlers += [lifecycle.get("postStart"), lifecycle.get("preStop")]
        for handler in handlers:
            for action in ("httpGet", "tcpSocket"):
                host = ((handler or {}).get(action) or {}).get("host")
                if host:
                    bad.add(one["name"])
                    hosts.add(host)
    use = "uses" if len(bad) == 1 else "use"
    word = _some("probe or lifecycle host", len(hosts))
    text = f"{_containers(sorted(bad))} {use} {word} {_quoted(sorted(hosts))}"
    return ForbiddenSetting("probe or lifecycle host", text) if bad else None


def _apparmor(pod: _CheckedPod) -> ForbiddenSetting | None:
    def bad_type(context: Tree) -> str | None:
        profile = context.get("appArmorProfile")
        kind = None if profile is None else profile.get("type", "")
        return None if kind is None or kind in _NAMED_PROFILES else str(kind)

    types = {kind for kind in [bad_type(pod.context)] if kind is not None}
    is_pod, bad = bool(types), []
    for name, context in pod.contexts():
        kind = bad_type(context)
        if kind is not None:
            bad.append(name)
            types.add(kind)
    notes = sorted(
        f'{key}="{value}"'
        for key, value in pod.annotations.items()
        if key.startswith(_APPARMOR_KEY)
        and value not in ("", "runtime/default")
        and not value.startswith("localhost/")
    )
    setters = [text for text in [_setters(is_pod, bad)] if text]
    setters += [_some("annotation", len(notes))] * bool(notes)
    values = [*sorted(types), *notes]
    text = f"{' and '.join(setters)} must not set AppArmor profile type to {_quoted(values)}"
    reason = _some("forbidden AppArmor profile", len(values))
    return ForbiddenSetting(reason, text) if setters else None


def _proc_mount(pod: _CheckedPod) -> ForbiddenSetting | None:
    bad, types = [], set()
    for name, context in pod.contexts():
        kind = context.get("procMount")
        if kind is not None and kind != "Default":
            bad.append(name)
            types.add(kind)
    text = f"{_containers(bad)} must not set securityContext.procMount to {_quoted(sorted(types))}"
    return ForbiddenSetting("procMount", text) if bad else None


def _proc_mount_of_shared_users(pod: _CheckedPod) -> ForbiddenSetting | None:
    return None if pod.has_own_users else _proc_mount(pod)


def _seccomp_baseline(pod: _CheckedPod) -> ForbiddenSetting | None:
    return _seccomp_annotations(pod) if pod.minor < 19 else _forbidden_seccomp(pod)


def _seccomp_annotations(pod: _CheckedPod) -> ForbiddenSetting | None:
    keys = [_SECCOMP_KEY, *(f"{_SECCOMP_CONTAINER_KEY}{one['name']}" for one in pod.containers)]
    allowed = ("runtime/default", "docker/default")
    found = sorted(
        {
            f'{key}="{value}"'
            for key in keys
            if (value := pod.annotations.get(key)) is not None
            and value not in allowed
            and not value.startswith("localhost/")
        }
    )
    text = f"forbidden {_some('annotation', len(found))} {', '.join(found)}"
    return ForbiddenSetting("seccompProfile", text) if found else None


def _seccomp_type(context: Tree) -> str | None:
    profile = context.get("seccompProfile")
    return None if profile is None else str(profile.get("type", ""))


def _forbidden_seccomp(pod: _CheckedPod) -> ForbiddenSetting | None:
    def is_bad(kind: str | None) -> bool:
        return kind is not None and kind not in _NAMED_PROFILES

    own = _seccomp_type(pod.context)
    given = [(name, _seccomp_type(context)) for name, context in pod.contexts()]
    bad = [name for name, kind in given if is_bad(kind)]
    types = {kind for kind in [own, *(kind for _, kind in given)] if is_bad(kind)}
    setters = _setters(is_bad(own), bad)
    values = _quoted(sorted(str(kind) for kind in types))
    text = f"{setters} must not set securityContext.seccompProfile.type to {values}"
    return ForbiddenSetting("seccompProfile", text) if setters else None


def _selinux(pod: _CheckedPod) -> ForbiddenSetting | None:
    allowed = {kind for kind, since in _SELINUX_TYPES.items() if pod.minor >= since}
    given = [("", pod.context), *pod.contexts()]
    options = [(name, context.get("seLinuxOptions")) for name, context in given]
    bad = [
        (name, one)
        for name, one in options
        if one and (one.get("type", "") not in allowed or one.get("user") or one.get("role"))
    ]
    if not bad:
        return None
    types = sorted({one["type"] for _, one in bad if one.get("type", "") not in allowed})
    reported = [f"{_some('type', len(types))} {_quoted(types)}"] if types else []
    reported += ["user may not be set"] * any(one.get("user") for _, one in bad)
    reported += ["role may not be set"] * any(one.get("role") for _, one in bad)
    is_pod = any(one is options[0][1] for _, one in bad)
    setters = _setters(is_pod, [name for name, _ in bad if name])
    text = f"{setters} set forbidden securityContext.seLinuxOptions: {'; '.join(reported)}"
    return ForbiddenSetting("seLinuxOptions", text)


def _sysctls(pod: _CheckedPod) -> ForbiddenSetting | None:
    names = [one["name"] for one in pod.context.get("sysctls") or ()]
    bad = [name for name in names if pod.minor < _SYSCTLS.get(name, MAX_MINOR + 1)]
    return ForbiddenSetting("forbidden sysctls", ", ".join(bad)) if bad else None


def _windows_host_process(pod: _CheckedPod) -> ForbiddenSetting | None:
    def is_bad(context: Tree) -> bool:
        return bool((context.get("windowsOptions") or {}).get("hostProcess"))

    setters = _setters(is_bad(pod.context), [name for name, one in pod.contexts() if is_bad(one)])
    text = f"{setters} must not set securityContext.windowsOptions.hostProcess=true"
    return ForbiddenSetting("hostProcess", text) if setters else None


# Restricted


def _privilege_escalation(pod: _CheckedPod) -> ForbiddenSetting | None:
    if pod.is_windows:
        return None
    bad = [
        name
        for name, context in pod.contexts()
        if context.get("allowPrivilegeEscalation") is not False
    ]
    text = f"{_containers(bad)} must set securityContext.allowPrivilegeEscalation=false"
    return ForbiddenSetting("allowPrivilegeEscalation != false", text) if bad else None


def _dropped_capabilities(pod: _CheckedPod) -> ForbiddenSetting | None:
    if pod.is_windows:
        return None
    keeping, adding, found = [], [], set()
    for name, context in pod.contexts():
        held = context.get("capabilities") or {}
        if "ALL" not in (held.get("drop") or ()):
            keeping.append(name)
        added = set(held.get("add") or ()) - {"NET_BIND_SERVICE"}
        if added:
            adding.append(name)
            found |= added
    reported = []
    if keeping:
        reported.append(
            f'{_containers(keeping)} must set securityContext.capabilities.drop=["ALL"]'
        )
    if adding:
        reported.append(
            f"{_containers(adding)} must not include {_quoted(sorted(found))} in"
            " securityContext.capabilities.add"
        )
    return ForbiddenSetting("unrestricted capabilities", "; ".join(reported)) if reported else None


def _volume_types(pod: _CheckedPod) -> ForbiddenSetting | None:
    bad, types = [], set()
    for volume in pod.spec.get("volumes") or ():
        kinds = set(volume) - {"name"}
        if not kinds & _VOLUME_TYPES:
            bad.append(volume["name"])
            kind = next(iter(sorted(kinds)), "unknown")
            types.add(kind)
    use, word = "uses" if len(bad) == 1 else "use", _some("restricted volume type", len(types))
    names = f"{_some('volume', len(bad))} {_quoted(bad)}"
    text = f"{names} {use} {word} {_quoted(sorted(types))}"
    return ForbiddenSetting("restricted volume types", text) if bad else None


def _run_as_non_root(pod: _CheckedPod) -> ForbiddenSetting | None:
    if pod.has_own_users:
        return None
    own = pod.context.get("runAsNonRoot")
    given = [(name, context.get("runAsNonRoot")) for name, context in pod.contexts()]
    setters = _setters(own is False, [name for name, value in given if value is False])
    reason = "runAsNonRoot != true"
    if setters:
        return ForbiddenSetting(
            reason, f"{setters} must not set securityContext.runAsNonRoot=false"
        )
    unset = [name for name, value in given if value is None and not own]
    text = f"pod or {_containers(unset)} must set securityContext.runAsNonRoot=true"
    return ForbiddenSetting(reason, text) if unset else None


def _run_as_user(pod: _CheckedPod) -> ForbiddenSetting | None:
    if pod.has_own_users:
        return None
    bad = [name for name, context in pod.contexts() if context.get("runAsUser") == 0]
    setters = _setters(pod.context.get("runAsUser") == 0, bad)
    return (
        ForbiddenSetting("runAsUser=0", f"{setters} must not set runAsUser=0") if setters else None
    )


def _seccomp_restricted(pod: _CheckedPod) -> ForbiddenSetting | None:
    if pod.is_windows:
        return None
    found = _forbidden_seccomp(pod)
    if found is not None or _seccomp_type(pod.context) is not None:
        return found
    unset = [name for name, context in pod.contexts() if _seccomp_type(context) is None]
    text = (
        f"pod or {_containers(unset)} must set securityContext.seccompProfile.type to"
        ' "RuntimeDefault" or "Localhost"'
    )
    return ForbiddenSetting("seccompProfile", text) if unset else None


_Check = Callable[[_CheckedPod], ForbiddenSetting | None]
_BASELINE: dict[str, tuple[int, _Check]] = {
    "appArmorProfile": (0, _apparmor),
    "capabilities_baseline": (0, _capabilities),
    "hostNamespaces": (0, _host_namespaces),
    "hostPathVolumes": (0, _host_path_volumes),
    "hostPorts": (0, _host_ports),
    "hostProbesAndHostLifecycle": (34, _host_probes),
    "privileged": (0, _privileged),
    "procMount": (0, _proc_mount_of_shared_users),
    "seLinuxOptions": (0, _selinux),
    "seccompProfile_baseline": (0, _seccomp_baseline),
    "sysctls": (0, _sysctls),
    "windowsHostProcess": (0, _windows_host_process),
}
"""Checks by name, in order, with the minor version since which they are."""
_RESTRICTED: dict[str, tuple[int, _Check, str]] = {
    "allowPrivilegeEscalation": (8, _privilege_escalation, ""),
    "capabilities_restricted": (22, _dropped_capabilities, "capabilities_baseline"),
    "procMount_restricted": (35, _proc_mount, "procMount"),
    "restrictedVolumes": (0, _volume_types, "hostPathVolumes"),
    "runAsNonRoot": (0, _run_as_non_root, ""),
    "runAsUser": (23, _run_as_user, ""),
    "seccompProfile_restricted": (19, _seccomp_restricted, "seccompProfile_baseline"),
}
"""The same, and the check of the level below that each stands for."""


@cache
def _checks(level: str, minor: int) -> tuple[_Check, ...]:
    return tuple(_selected_checks(level, minor))


def _selected_checks(level: str, minor: int) -> Iterator[_Check]:
    stricter = [one for one in _RESTRICTED.values() if level == RESTRICTED and minor >= one[0]]
    replaced = {one[2] for one in stricter}
    for name, (since, check) in _BASELINE.items():
        if minor >= since and name not in replaced:
            yield check
    for _, check, _ in stricter:
        yield check
