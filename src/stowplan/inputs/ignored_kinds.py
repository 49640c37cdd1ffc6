"""Ignored kinds: which of them could affect scheduling, and notes about them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from stowplan.framework.problems import did_you_mean
from stowplan.inputs.importers import IMPORTERS, LOOKED_UP
from stowplan.inputs.importers.imported_objects import KUEUE_GROUP
from stowplan.inputs.manifests import KINDS, OF_SCHEDULING

NO_EFFECT = frozenset(
    {
        "ConfigMap", "Secret", "ServiceAccount", "Endpoints", "Event", "ComponentStatus",
        "Role.rbac.authorization.k8s.io", "RoleBinding.rbac.authorization.k8s.io",
        "ClusterRole.rbac.authorization.k8s.io", "ClusterRoleBinding.rbac.authorization.k8s.io",
        "PodTemplate", "ControllerRevision.apps", "Event.events.k8s.io",
        "Lease.coordination.k8s.io",
        "EndpointSlice.discovery.k8s.io", "Ingress.networking.k8s.io",
        "IngressClass.networking.k8s.io", "NetworkPolicy.networking.k8s.io",
        "CustomResourceDefinition.apiextensions.k8s.io",
        "APIService.apiregistration.k8s.io",
        "PriorityLevelConfiguration.flowcontrol.apiserver.k8s.io",
        "FlowSchema.flowcontrol.apiserver.k8s.io",
        "CertificateSigningRequest.certificates.k8s.io",
        "NodeMetrics.metrics.k8s.io", "PodMetrics.metrics.k8s.io",
        "ServiceMonitor.monitoring.coreos.com", "PodMonitor.monitoring.coreos.com",
        "PrometheusRule.monitoring.coreos.com",
    }
)  # fmt: skip
"""Kinds that affect no scheduling decision and create no pods."""


REPLAYED = frozenset(
    {
        "CronJob.batch",
        "HorizontalPodAutoscaler.autoscaling",
    }
)
"""Kinds that no fill reads, and whose controllers run in a replay of workloads."""


def relevant_kinds(ignored: Mapping[str, int]) -> dict[str, int]:
    """Ignored kinds that could affect the result: they create pods, or admission reads them."""
    return {kind: count for kind, count in ignored.items() if kind not in NO_EFFECT}


def describe_ignored(ignored: Mapping[str, int]) -> list[str]:
    """Notes on ignored kinds: one line for relevant kinds, one for the others."""
    matters = relevant_kinds(ignored)
    rest = {kind: count for kind, count in ignored.items() if kind not in matters}
    hints = {kind: hint for kind in matters if (hint := _hint(kind))}
    lines = [f"ignored, not supported: {_counted(matters, hints)}"] if matters else []
    return lines + ([f"ignored, no effect on scheduling: {_counted(rest, {})}"] if rest else [])


def _counted(kinds: Mapping[str, int], hints: Mapping[str, str]) -> str:
    texts = []
    for kind, count in sorted(kinds.items()):
        hint = f" ({hints[kind]})" if kind in hints else ""
        texts.append(f"{count:,} {kind}{hint}")
    return ", ".join(texts)


def _hint(full: str) -> str:
    """What a kind that is not read was meant to be: one of its group that is written almost alike,
    one of the same name in a group that is, or in any for one without a group; "" if there is none.

    Kinds of other groups that are only alike are other kinds.
    """
    kind, _, group = full.partition(".")
    known: dict[str, set[str]] = {}
    for one in _known_kinds():
        name, _, its_group = one.partition(".")
        known.setdefault(its_group, set()).add(name)
    if kind in known.get(group, ()):
        # It is read in other versions, or where another scheduler decides.
        return ""
    near = did_you_mean(kind, sorted(known.get(group, ())))
    if near:
        return near.removesuffix("'?") + (f".{group}'?" if group else "'?")
    groups = [one for one in sorted(known) if kind in known[one]]
    meant = did_you_mean(group, groups) if group else ""
    chosen = next((one for one in groups if f"{one!r}" in meant or not group), "")
    return f"did you mean '{kind}.{chosen}'?" if chosen else ""


@cache
def _known_kinds() -> frozenset[str]:
    """Kinds that are read, or known to have no effect, as `KIND.GROUP`."""
    from stowplan.apis.custom.kueue_checks import CHECKS

    read = {(group, kind) for kind, how in KINDS.items() for group in how.groups}
    read |= {(version.rpartition("/")[0], kind) for version, kind in OF_SCHEDULING}
    read |= {*IMPORTERS, *LOOKED_UP, *((KUEUE_GROUP, kind) for kind in CHECKS)}
    written = {f"{kind}.{group}" if group else kind for group, kind in read}
    return frozenset(written | NO_EFFECT | REPLAYED)
