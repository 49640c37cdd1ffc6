"""Validation of the status of pods.

Source: kubernetes v1.36, pkg/apis/core/validation/validation.go: ValidatePodStatusUpdate.
"""

from __future__ import annotations

from collections.abc import Iterator

from stowplan.apis.machinery.errors import Cause, forbidden_field, invalid
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree

_SYSTEM = frozenset({"PodScheduled", "Ready", "Initialized"})


def status_update(new: Tree, old: Tree) -> Iterator[Cause]:
    """Causes of an updated status."""
    status, before = new["status"], old["status"]
    yield from _conditions(status.get("conditions", []))
    yield from _nominated(status, before, old["spec"])
    if status.get("observedGeneration", 0) < 0:
        text = "must be a non-negative integer"
        yield invalid("status.observedGeneration", status["observedGeneration"], text)
    qos = status.get("qosClass", "")
    yield from field_checks.immutable(qos, before.get("qosClass", ""), "status.qosClass")
    for name in ("containerStatuses", "initContainerStatuses"):
        yield from _transitions(name, status, before, old["spec"])
    yield from _claims(status, new["spec"])
    yield from _addresses(status)


def _conditions(given: list[Tree]) -> Iterator[Cause]:
    for at, one in enumerate(given):
        if one.get("observedGeneration", 0) < 0:
            here = f"status.conditions[{at}].observedGeneration"
            yield invalid(here, one["observedGeneration"], "must be a non-negative integer")
        if one["type"] not in _SYSTEM:
            yield from field_checks.qualified_name(one["type"], f"status.conditions[{at}].Type")


def _nominated(status: Tree, before: Tree, spec: Tree) -> Iterator[Cause]:
    name = status.get("nominatedNodeName", "")
    if name and name != before.get("nominatedNodeName", ""):
        yield from field_checks.dns_subdomain(name, "status.nominatedNodeName")
        if spec.get("nodeName"):
            text = "may not be set on pods that are already bound to a node"
            yield forbidden_field("status.nominatedNodeName", text)


def _transitions(name: str, status: Tree, before: Tree, spec: Tree) -> Iterator[Cause]:
    """A container that terminated and is not restarted stays terminated."""
    policy = spec["restartPolicy"]
    initial = name == "initContainerStatuses"
    if policy == "Always" and not initial:
        return
    known = {one["name"]: one for one in status.get(name, ())}
    rules = {one["name"]: one.get("restartPolicy") for one in spec.get("initContainers", ())}
    for at, one in enumerate(before.get(name, ())):
        ended = one["state"].get("terminated")
        if ended is None:
            continue
        restarts = rules.get(one["name"]) or policy
        if restarts == "Always" or (ended["exitCode"] != 0 and restarts == "OnFailure"):
            continue
        after = known.get(one["name"])
        if after is not None and "terminated" not in after["state"]:
            text = "may not be transitioned to non-terminated state"
            yield forbidden_field(f"status.{name}[{at}].state", text)


def _claims(status: Tree, spec: Tree) -> Iterator[Cause]:
    known = {one["name"] for one in spec.get("resourceClaims", ())}
    for at, one in enumerate(status.get("resourceClaimStatuses", ())):
        here = f"status.resourceClaimStatuses[{at}]"
        if one["name"] not in known:
            text = "must match the name of an entry in `spec.resourceClaims`"
            yield invalid(f"{here}.name", one["name"], text)
        if "resourceClaimName" in one:
            yield from field_checks.dns_subdomain(
                one["resourceClaimName"], f"{here}.resourceClaimName"
            )


def _addresses(status: Tree) -> Iterator[Cause]:
    for name in ("podIPs", "hostIPs"):
        given = status.get(name, [])
        if name == "hostIPs" and given and given[0]["ip"] != status.get("hostIP", ""):
            yield invalid("status.hostIPs[0].ip", given[0]["ip"], "must be equal to `hostIP`")
        for at, one in enumerate(given):
            yield from field_checks.address(one["ip"], f"status.{name}[{at}]")
        if len(given) > 1:
            families = {":" in one["ip"] for one in given}
            if len(families) != 2 or len(given) > 2:
                printed = [{"IP": one["ip"]} for one in given]
                text = "may specify no more than one IP for each IP family"
                yield invalid(f"status.{name}", printed, text)
