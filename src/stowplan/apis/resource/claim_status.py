"""The status of a ResourceClaim: who may write which part of it, and what is dropped from it.

Allocation and reservations need the permission to update `resourceclaims/binding`, the status of
devices that for `resourceclaims/driver` with the name of the driver.

Source: kubernetes v1.36, pkg/registry/resource/utils.go, resourceclaim/strategy.go
(DRAResourceClaimGranularStatusAuthorization, on by default).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from stowplan.apis.kind.strategy import METADATA_RESET_FIELDS, StatusStrategy, UpdateCheck
from stowplan.apis.machinery.access import Attributes
from stowplan.apis.machinery.errors import ApiError, Cause, forbidden_field
from stowplan.apis.machinery.resource import ApiCall
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.selectors import NODE_NAME_FIELD

ADMIN_ACCESS_LABEL = "resource.kubernetes.io/admin-access"
_NODE_OF_ACCOUNT = "authentication.kubernetes.io/node-name"
_DeviceKey = tuple[str, str, str, str]


class ClaimStatusStrategy(StatusStrategy):
    """The status subresource of claims."""

    def __init__(self, check: UpdateCheck) -> None:
        """check: of the new status against the old one."""
        super().__init__(check, meta=METADATA_RESET_FIELDS)

    def prepare_update(self, new: Tree, old: Tree, call: ApiCall) -> None:
        super().prepare_update(new, old, call)
        _drop_deallocated(new["status"], old["status"])

    def validate_update(self, new: Tree, old: Tree, call: ApiCall) -> Iterable[Cause]:
        yield from _admin_causes(new["status"], old["status"], call)
        yield from _binding_causes(new["status"], old["status"], call)
        yield from _device_causes(new["status"], old["status"], call)
        yield from super().validate_update(new, old, call)


def admin_access_causes(path: str, call: ApiCall) -> Iterator[Cause]:
    """The cause at `path` where the namespace lacks the label for admin access."""
    kind = call.objects.registry.find("", "v1", "namespaces")
    if kind is None:
        return
    namespace = call.objects.peek(kind, "", call.namespace) or {"metadata": {}}
    if namespace["metadata"].get("labels", {}).get(ADMIN_ACCESS_LABEL) != "true":
        text = f"admin access to devices requires the `{ADMIN_ACCESS_LABEL}: true` label"
        yield forbidden_field(path, f"{text} on the containing namespace")


def _results(status: Tree) -> list[Tree]:
    return ((status.get("allocation") or {}).get("devices") or {}).get("results") or []


def _key(one: Tree) -> _DeviceKey:
    return one["driver"], one["pool"], one["device"], one.get("shareID") or ""


def _drop_deallocated(status: Tree, before: Tree) -> None:
    """Drop the status of devices that the claim has no more."""
    if not status.get("devices"):
        return
    gone = set(map(_key, _results(before))) - set(map(_key, _results(status)))
    left = [one for one in status["devices"] if _key(one) not in gone]
    if left:
        status["devices"] = left
    else:
        del status["devices"]


def _admin_causes(status: Tree, before: Tree, call: ApiCall) -> Iterator[Cause]:
    if any(one.get("adminAccess") for one in _results(before)):
        return
    for at, one in enumerate(_results(status)):
        if one.get("adminAccess"):
            path = f"status.allocation.devices.results[{at}].adminAccess"
            yield from admin_access_causes(path, call)
            return


def _binding_causes(status: Tree, before: Tree, call: ApiCall) -> Iterator[Cause]:
    names = ("allocation", "reservedFor")
    if all((status.get(name) or None) == (before.get(name) or None) for name in names):
        return
    refused = _refusal(call, call.verb, "binding")
    if refused:
        text = "changing status.allocation or status.reservedFor requires "
        text += f'resource="resourceclaims/binding", verb="{call.verb}" permission: {refused}'
        yield forbidden_field("status.allocation", text)


def _device_causes(status: Tree, before: Tree, call: ApiCall) -> Iterator[Cause]:
    if status.get("allocation") is None:
        return
    now, was = ({_key(one): one for one in each.get("devices") or ()} for each in (status, before))
    drivers = {key[0] for key in {*now, *was} if now.get(key) != was.get(key)}
    verbs = [f"arbitrary-node:{call.verb}"]
    if _is_on_node(call, status["allocation"]):
        verbs.insert(0, f"associated-node:{call.verb}")
    for driver in sorted(drivers):
        refusals = [_refusal(call, verb, "driver", call.namespace, driver) for verb in verbs]
        if all(refusals):
            text = 'changing status.devices requires resource="resourceclaims/driver", '
            text += f'verb="[{" ".join(verbs)}]" permission: {refusals[0]}'
            yield forbidden_field("status.devices", text)


def _refusal(
    call: ApiCall, verb: str, subresource: str, namespace: str = "", name: str = ""
) -> str:
    """Why the user may not; "" where it may."""
    wanted = Attributes(
        verb, call.resource.group, call.resource.version, "resourceclaims", subresource,
        namespace, name,
    )  # fmt: skip
    try:
        call.access.authorize(call.user, wanted)
    except ApiError as refused:
        return refused.message
    return ""


def _is_on_node(call: ApiCall, allocation: Tree) -> bool:
    """True for a service account on the one node for which the claim is allocated."""
    nodes = call.user.extra.get(_NODE_OF_ACCOUNT, ())
    if not call.user.name.startswith("system:serviceaccount:") or len(nodes) != 1:
        return False
    terms = (allocation.get("nodeSelector") or {}).get("nodeSelectorTerms") or []
    if len(terms) != 1 or terms[0].get("matchExpressions"):
        return False
    fields = terms[0].get("matchFields") or []
    wanted = [{"key": NODE_NAME_FIELD, "operator": "In", "values": list(nodes)}]
    return bool(fields == wanted)
