"""Warnings about services.

Unproved: those about IP addresses in other forms than the canonical one are not given.

Source: kubernetes v1.36, pkg/api/service/warnings.go.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.objects.encoding.tree import Tree

_HINTS, _MODE = "service.kubernetes.io/topology-aware-hints", "service.kubernetes.io/topology-mode"
_EXTERNAL_NAME = "ExternalName"


def service_warnings(obj: Tree) -> Iterator[str]:
    """Texts about fields that are deprecated or have no effect."""
    if _HINTS in (obj["metadata"].get("annotations") or {}):
        yield f"annotation {_HINTS} is deprecated, please use {_MODE} instead"
    spec = obj["spec"]
    kind, addresses = spec["type"], spec.get("externalIPs")
    headless = kind == "ClusterIP" and spec.get("clusterIP") == "None"
    if headless:
        if spec.get("loadBalancerIP"):
            yield "spec.loadBalancerIP is ignored for headless services"
        if addresses:
            yield "spec.externalIPs is ignored for headless services"
        if spec.get("sessionAffinity") != "None":
            yield "spec.SessionAffinity is ignored for headless services"
    if addresses and not headless and kind != _EXTERNAL_NAME:
        yield "spec.externalIPs is deprecated and may no longer be implemented in some clusters"
    if addresses and kind == _EXTERNAL_NAME:
        yield f'spec.externalIPs is ignored when spec.type is "{_EXTERNAL_NAME}"'
    if kind != _EXTERNAL_NAME and spec.get("externalName"):
        yield f'spec.externalName is ignored when spec.type is not "{_EXTERNAL_NAME}"'
    if spec.get("trafficDistribution") == "PreferClose":
        yield 'spec.trafficDistribution: "PreferClose" is deprecated; use "PreferSameZone"'
