"""Defaults of pods and their parts that depend on other fields.

Source: kubernetes v1.36, pkg/apis/core/v1/defaults.go.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from stowplan.apis.schema import canonical_quantity
from stowplan.apis.schema.image_reference import image_tag
from stowplan.apis.schema.struct_types import DefaultingHook
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.quantity import Exact

_POD_LEVEL = frozenset({"cpu", "memory"})
_HUGE_PAGES = "hugepages-"


def _set_container_defaults(one: Tree) -> None:
    """imagePullPolicy is Always for images without a tag or with `latest`."""
    if "imagePullPolicy" not in one:
        latest = image_tag(one.get("image", "")) == "latest"
        one["imagePullPolicy"] = "Always" if latest else "IfNotPresent"


def _set_volume_defaults(one: Tree) -> None:
    """A volume without a source is an emptyDir."""
    if len(one) == 1:
        one["emptyDir"] = {}
    image = one.get("image")
    if image is not None and "pullPolicy" not in image:
        latest = image_tag(image.get("reference", "")) == "latest"
        image["pullPolicy"] = "Always" if latest else "IfNotPresent"


def _set_pod_spec_defaults(one: Tree) -> None:
    """serviceAccount and serviceAccountName are the same."""
    name = one.get("serviceAccountName") or one.get("serviceAccount")
    if name:
        one["serviceAccountName"] = one["serviceAccount"] = name


def _set_pod_defaults(one: Tree) -> None:
    """Requests from limits, host ports with hostNetwork, enableServiceLinks."""
    spec = one["spec"]
    both = (*(spec["containers"] or ()), *spec.get("initContainers", ()))
    for each in both:
        _set_requests_from_limits(each["resources"])
        if spec.get("hostNetwork"):
            for port in each.get("ports", ()):
                port.setdefault("hostPort", port["containerPort"])
    if "resources" in spec:
        _set_pod_level_resources(spec)
    spec.setdefault("enableServiceLinks", True)


def set_stored_pod_defaults(spec: Tree) -> None:
    """Requests of the pod as a whole, once admission has completed those of its containers."""
    if "resources" in spec:
        _set_pod_level_resources(spec)


def _set_pod_template_spec_defaults(one: Tree) -> None:
    """Templates drop an empty overhead; pods keep it and fail validation."""
    if not one["spec"].get("overhead", True):
        del one["spec"]["overhead"]


def _set_pod_status_defaults(one: Tree) -> None:
    """podIP and the first of podIPs are the same."""
    first, several = one.get("podIP"), one.get("podIPs")
    if first and (not several or several[0]["ip"] != first):
        one["podIPs"] = [{"ip": first}]
    elif several and not first:
        one["podIP"] = several[0]["ip"]


def _set_requests_from_limits(resources: Tree) -> None:
    limits = resources.get("limits")
    if limits:
        requests = resources.setdefault("requests", {})
        for name, amount in limits.items():
            requests.setdefault(name, amount)


def _set_pod_level_resources(spec: Tree) -> None:
    """Pod-level requests, from the containers' requests and the pod-level limits."""
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
    """Requests or limits of the pod: the sum of its containers, or the largest init container
    with the sidecars started before it, whichever is more."""
    total: dict[str, _Sum] = {}
    for each in spec["containers"] or ():
        _add(total, each["resources"].get(which, {}))
    sidecars: dict[str, _Sum] = {}
    peak: dict[str, _Sum] = {}
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
    return {
        name: canonical_quantity.format_quantity(one.amount, one.suffix)
        for name, one in total.items()
    }


class _Sum(NamedTuple):
    """A sum of amounts. suffix: of the first that is not zero, which Go writes the sum with."""

    amount: Exact
    suffix: str


def _add(total: dict[str, _Sum], amounts: dict[str, str]) -> None:
    for name, text in amounts.items():
        amount, suffix = canonical_quantity.amount(text), canonical_quantity.suffix_of(text)
        held = total.get(name)
        if held is not None:
            suffix = held.suffix if held.amount.unscaled else suffix
            amount = held.amount + amount
        total[name] = _Sum(amount, suffix)


def _raise_to_maximum(total: dict[str, _Sum], other: dict[str, _Sum]) -> None:
    for name, one in other.items():
        if name not in total or one.amount > total[name].amount:
            total[name] = one


POD_DEFAULTS: Mapping[str, DefaultingHook] = {
    "core/v1.Container": _set_container_defaults,
    "core/v1.EphemeralContainer": _set_container_defaults,
    "core/v1.Volume": _set_volume_defaults,
    "core/v1.PodSpec": _set_pod_spec_defaults,
    "core/v1.Pod": _set_pod_defaults,
    "core/v1.PodTemplateSpec": _set_pod_template_spec_defaults,
    "core/v1.PodStatus": _set_pod_status_defaults,
}
"""By full name of the type."""
