"""Ignored kinds: which of them could affect scheduling, and notes about them."""

from __future__ import annotations

from collections.abc import Mapping

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
    lines = [f"ignored, not supported: {_counted(matters)}"] if matters else []
    return lines + ([f"ignored, no effect on scheduling: {_counted(rest)}"] if rest else [])


def _counted(kinds: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {kind}" for kind, count in sorted(kinds.items()))
