"""APIService: a version of a group, and who serves it.

Source: kubernetes v1.36, kube-aggregator: pkg/registry/apiservice, pkg/apis/apiregistration.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from stowplan.apis.kind.printing import PrintedTable
from stowplan.apis.kind.registration import KindRegistration
from stowplan.apis.kind.strategy import PATH_SEGMENT_NAME, BuiltinStrategy, StatusStrategy
from stowplan.apis.machinery.errors import Cause, invalid, not_supported, required
from stowplan.apis.machinery.names import (
    label_1035_problems,
    path_segment_problems,
    subdomain_problems,
)
from stowplan.apis.machinery.resource import ApiCall
from stowplan.apis.machinery.timestamps import format_time
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

TYPES = """
APIServiceConditionType = string

APIService -- a version of a group, and the server that serves it.
  +PartialObjectMetadata
  spec APIServiceSpec! ={}
  status APIServiceStatus! ={}

APIServiceSpec -- which version of which group, and where requests for it go.
  service ServiceReference? -- the Service of the server; none for what this server serves itself
  group string -- name of the group
  version string -- name of the version
  insecureSkipTLSVerify bool -- do not verify the server's certificate
  caBundle bytes -- authorities of the server's certificate, PEM
  groupPriorityMinimum int32! -- groups with a higher number are listed first
  versionPriority int32! -- versions with a higher number are listed first

ServiceReference
  namespace string
  name string
  port int32? =443

APIServiceStatus
  conditions [APIServiceCondition] ~merge:type

APIServiceCondition
  type APIServiceConditionType!
  status core.ConditionStatus!
  lastTransitionTime Time
  reason string
  message string
"""
GROUP = "apiregistration.k8s.io"
PATH = f"{GROUP}/apiservices"
AUTOMANAGED = "kube-aggregator.kubernetes.io/automanaged"
_STATUSES = ("False", "True", "Unknown")


def available(status: str, reason: str, message: str, now: float) -> Tree:
    """The condition that tells whether a version is served."""
    return {
        "type": "Available",
        "status": status,
        "lastTransitionTime": format_time(now),
        "reason": reason,
        "message": message,
    }


class ApiServiceStrategy(BuiltinStrategy):
    """What this server serves itself is available at once."""

    def prepare_create(self, obj: Tree, call: ApiCall) -> None:
        super().prepare_create(obj, call)
        if not obj["spec"].get("service"):
            text = "Local APIServices are always available"
            obj["status"] = {"conditions": [available("True", "Local", text, call.now)]}


def _validate(obj: Tree) -> Iterator[Cause]:
    spec, name = obj["spec"], obj["metadata"].get("name", "")
    group, version = spec.get("group", ""), spec.get("version", "")
    if name and name != f"{version}.{group}" and not path_segment_problems(name):
        text = f'must be `spec.version+"."+spec.group`: "{version}.{group}"'
        yield invalid("metadata.name", name, text)
    if not group and version != "v1":
        text = "only v1 may have an empty group and it better be legacy kube"
        yield required("spec.group", text)
    for problem in subdomain_problems(group) if group else ():
        yield invalid("spec.group", group, problem)
    for problem in label_1035_problems(version):
        yield invalid("spec.version", version, problem)
    for field, limit in (("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)):
        value = spec.get(field, 0)
        if not 0 < value <= limit:
            text = f"must be positive and less than {limit}"
            yield invalid(f"spec.{field}", value, text)
    yield from _validate_server(spec)


def _validate_server(spec: Tree) -> Iterator[Cause]:
    service, bundle = spec.get("service"), spec.get("caBundle") or ""
    is_lax = spec.get("insecureSkipTLSVerify", False)
    if service is None:
        if bundle:
            size = len(bundle) * 3 // 4 - bundle.count("=")
            text = "local APIServices may not have a caBundle"
            yield invalid("spec.caBundle", f"{size} bytes", text)
        if is_lax:
            text = "local APIServices may not have insecureSkipTLSVerify"
            yield invalid("spec.insecureSkipTLSVerify", is_lax, text)
        return
    for name in ("namespace", "name"):
        if not service.get(name):
            yield required(f"spec.service.{name}")
    problems = [cause.message for cause in field_checks.port_number(service["port"], "")]
    if problems:
        reasons = ", ".join(text.rpartition(": ")[2] for text in problems)
        yield invalid("spec.service.port", service["port"], f"port is not valid: {reasons}")
    if is_lax and bundle:
        text = "may not be true if caBundle is present"
        yield invalid("spec.insecureSkipTLSVerify", is_lax, text)


def _validate_status(new: Tree, old: Tree) -> Iterator[Cause]:
    for at, one in enumerate(new["status"].get("conditions") or ()):
        if one["status"] not in _STATUSES:
            yield not_supported(f"status.conditions[{at}].status", one["status"], _STATUSES)


def _update(new: Tree, old: Tree) -> Iterator[Cause]:
    yield from _validate(new)


def _cells(obj: Tree, now: float) -> list[Any]:
    service = obj["spec"].get("service")
    place = f"{service['namespace']}/{service['name']}" if service else "Local"
    conditions = obj.get("status", {}).get("conditions") or ()
    found = next((one for one in conditions if one["type"] == "Available"), None)
    if found is None:
        return [place, "Unknown"]
    reason = found.get("reason")
    reported = found["status"]
    return [place, f"{reported} ({reason})" if reported != "True" and reason else reported]


KIND = KindRegistration(
    group=GROUP,
    kind="APIService",
    types=TYPES,
    namespaced=False,
    strategy=ApiServiceStrategy(
        _validate, _update, status={}, names=PATH_SEGMENT_NAME, unconditional=False
    ),
    status=StatusStrategy(_validate_status),
    categories=("api-extensions",),
    table=PrintedTable("Name, Service, Available, Age", _cells),
)
