"""LimitRanger: defaults of containers, and limits of containers, pods and claims.

Source: kube-apiserver v1.36, plugin/pkg/admission/limitranger.
"""

from __future__ import annotations

from stowplan.apis.limits.limit_range_rules import (
    aggregate_text,
    claim_violations,
    container_defaults,
    violations,
)
from stowplan.apis.limits.resource_amounts import Amounts
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apiserver.admission.admission_plugin import (
    AdmissionPluginBase,
    ObjectsByNamespace,
    admission_forbidden,
    targets,
)
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.limits import LimitRange
from stowplan.objects.pod import Pod

ANNOTATION = "kubernetes.io/limit-ranger"
_PODS = "pods"
_CLAIMS = "persistentvolumeclaims"


class LimitRanger(AdmissionPluginBase):
    """Applies the LimitRanges of a namespace to new pods, and to claims."""

    repeatable = True
    only_objects = True
    paths = (_PODS, _CLAIMS)

    def __init__(self) -> None:
        self._ranges = ObjectsByNamespace("limitranges")

    def admit(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Set the requests and limits that containers of a new pod lack."""
        if obj is None or old is not None or not targets(call, _PODS):
            return
        for tree in self._ranges.of(call, call.namespace):
            _set_defaults(obj, convert(tree, LimitRange))

    def validate(self, call: ApiCall, obj: Tree | None, old: Tree | None) -> None:
        """Raises ApiError 403."""
        is_pod = old is None and targets(call, _PODS)
        if obj is None or not (is_pod or targets(call, _CLAIMS)):
            return
        if old is not None and old["metadata"].get("deletionTimestamp"):
            return
        for tree in self._ranges.of(call, call.namespace):
            limit_range = convert(tree, LimitRange)
            if is_pod:
                text = aggregate_text(violations(convert(obj, Pod), limit_range))
            else:
                requests = (obj["spec"].get("resources") or {}).get("requests") or {}
                text = aggregate_text(claim_violations(requests, limit_range))
            if text:
                raise admission_forbidden(call, obj, text)


def _set_defaults(pod: Tree, limit_range: LimitRange) -> None:
    requests, limits = container_defaults(limit_range)
    notes = []
    for field, title in (("containers", "container"), ("initContainers", "init container")):
        for container in pod["spec"].get(field) or ():
            name = container.get("name", "")
            resources = container.setdefault("resources", {})
            for kind, defaults, word in (
                ("requests", requests, "request"),
                ("limits", limits, "limit"),
            ):
                added = _add_missing(resources, kind, defaults)
                if added:
                    notes.append(f"{', '.join(added)} {word} for {title} {name}")
    if notes:
        meta = pod["metadata"]
        text = f"LimitRanger plugin set: {'; '.join(notes)}"
        meta["annotations"] = {**(meta.get("annotations") or {}), ANNOTATION: text}


def _add_missing(resources: Tree, kind: str, defaults: Amounts) -> list[str]:
    """Add amounts that are missing; returns their names, sorted."""
    given = resources.get(kind) or {}
    added = sorted(defaults.keys() - given.keys())
    if added:
        resources[kind] = {**given, **{name: str(defaults[name]) for name in added}}
    return added
