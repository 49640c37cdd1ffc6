"""API approval of definitions in the groups k8s.io and kubernetes.io.

Source: apiextensions-apiserver v0.36, pkg/apihelpers/helpers.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from stowplan.apis.machinery.errors import Cause, go_quoted, invalid, required
from stowplan.objects.encoding.tree import Tree

ANNOTATION = "api-approved.kubernetes.io"
_WHERE = "see https://github.com/kubernetes/enhancements/pull/1111"
_PATH = f"metadata.annotations[{ANNOTATION}]"


class ApprovalCondition(NamedTuple):
    """The annotation as a condition."""

    status: str
    reason: str
    text: str


def is_protected_group(group: str) -> bool:
    """True for groups that need an approval."""
    return any(group == one or group.endswith(f".{one}") for one in ("k8s.io", "kubernetes.io"))


def approval(annotations: Mapping[str, str]) -> ApprovalCondition:
    """The approval of a definition in a protected group."""
    given = annotations.get(ANNOTATION, "")
    need = f"protected groups must have approval annotation {go_quoted(ANNOTATION)}"
    if not given:
        return ApprovalCondition("False", "MissingAnnotation", f"{need}, {_WHERE}")
    if given.startswith("unapproved"):
        return ApprovalCondition(
            "False", "UnapprovedAnnotation", f"not approved: {go_quoted(given)}"
        )
    parts = urlsplit(given)
    if parts.scheme and parts.netloc:
        return ApprovalCondition("True", "ApprovedAnnotation", f"approved in {given}")
    how = 'with either a URL or a reason starting with "unapproved"'
    return ApprovalCondition("False", "InvalidAnnotation", f"{need} {how}, {_WHERE}")


def approval_causes(definition: Tree, old: Tree | None) -> Iterator[Cause]:
    """Causes of a missing or invalid approval; unchanged ones are accepted."""
    if not is_protected_group(definition["spec"]["group"]):
        return
    annotations = definition["metadata"].get("annotations", {})
    found = approval(annotations)
    if old is not None and approval(old["metadata"].get("annotations", {}))[:2] == found[:2]:
        return
    if found.reason == "MissingAnnotation":
        yield required(_PATH, found.text)
    elif found.reason == "InvalidAnnotation":
        yield invalid(_PATH, annotations[ANNOTATION], found.text)
