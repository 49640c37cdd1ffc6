"""Controller of definitions: accepts names, serves custom kinds, deletes their objects.

It does what several controllers of the original do, each with its own write: names and conditions,
Established, approval of protected groups. A deleted definition stays until its objects are deleted.

Source: apiextensions-apiserver v0.36, pkg/controller: status, establish, apiapproval, finalizer.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from stowplan.apis.kind import conditions
from stowplan.apis.machinery.access import AlwaysAllow
from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.resource import Resource, ServerContext, StoreChange
from stowplan.apis.machinery.stored_form import decode
from stowplan.apiserver.crd.approval import approval, is_protected_group
from stowplan.apiserver.crd.custom_resources import resources_of
from stowplan.objects.encoding.tree import Tree

DEFINITIONS_PATH = "apiextensions.k8s.io/customresourcedefinitions"
CLEANUP_FINALIZER = "customresourcecleanup.apiextensions.k8s.io"
CLEANUP_POLL_S = 0.2
"""Poll interval for the objects of a definition that is being deleted."""


class DefinitionController:
    """Serves the kinds of definitions (`resource.ChangeObserver`)."""

    def __init__(self) -> None:
        self._ending: set[str] = set()
        self._served: dict[str, object] = {}
        self._shapes: dict[str, tuple[object, int]] = {}

    def restore(self, server: ServerContext) -> None:
        """Serve the established definitions after a restart."""
        resource = server.registry.by_path(DEFINITIONS_PATH)
        for one in server.list(resource) if resource is not None else ():
            if condition_status(one, "Established") == "True":
                self._serve(server, one, True, 0.0)

    def changed(self, server: ServerContext, change: StoreChange, now: float) -> None:
        if change.resource.path != DEFINITIONS_PATH:
            return
        definition = decode(change.value)
        if change.type == "DELETED":
            self._ending.discard(definition["metadata"]["uid"])
            self._serve(server, definition, False, now)
            _recheck_names(server, definition, now)
            return
        current = server.get(change.resource, "", definition["metadata"]["name"])
        if current is None or current["metadata"]["uid"] != definition["metadata"]["uid"]:
            return
        self._serve(server, current, condition_status(current, "Established") == "True", now)
        if CLEANUP_FINALIZER in current["metadata"].get("finalizers", ()):
            if current["metadata"].get("deletionTimestamp"):
                self._end(server, change.resource, current, now)
        elif _establish_step(server, current, now):
            server.update_status(change.resource, current, now, AlwaysAllow.APISERVER)

    def _serve(
        self, server: ServerContext, definition: Tree, established: bool, now: float
    ) -> None:
        """Serve the versions of a definition, and no others of its kind."""
        registry, path = server.registry, custom_resource_path(definition)
        ending = condition_status(definition, "Terminating") == "True"
        names = definition["status"]["acceptedNames"]
        state = (definition["metadata"]["uid"], definition["spec"], names, ending)
        if self._served.get(path) == (state if established else None):
            return
        if self._served.get(path) is not None:
            for one in list(registry.all()):
                if one.custom and one.path == path:
                    registry.remove(one)
        self._served.pop(path, None)
        if established:
            self._served[path] = state
            for one in resources_of(definition, ending, self._since(server, definition, path)):
                registry.add(one)
        if not (ending and established):
            server.end_watches(path, now)

    def _since(self, server: ServerContext, definition: Tree, path: str) -> int:
        """Objects of versions later than this one have the current schema."""
        versions = definition["spec"]["versions"]
        known = self._shapes.get(path)
        if known is None or known[0] != versions:
            known = self._shapes[path] = (versions, server.version)
        return known[1]

    def _end(self, server: ServerContext, resource: Resource, current: Tree, now: float) -> None:
        """Begin to delete the objects, once."""
        uid = current["metadata"]["uid"]
        if uid in self._ending:
            return
        self._ending.add(uid)
        progress = "CustomResource deletion is in progress"
        set_condition(current, ("Terminating", "True", "InstanceDeletionInProgress", progress), now)
        server.update_status(resource, current, now, AlwaysAllow.APISERVER)
        name = current["metadata"]["name"]
        server.later(now, lambda then: self._delete(server, resource, name, uid, then))

    def _delete(
        self, server: ServerContext, resource: Resource, name: str, uid: str, now: float
    ) -> None:
        """Delete the objects, and the definition when they are deleted."""
        current = server.get(resource, "", name)
        if current is None or current["metadata"]["uid"] != uid:
            return
        custom = server.registry.by_path(custom_resource_path(current))
        if custom is not None and condition_status(current, "Established") == "True":
            if _delete_all_objects(server, custom, now):
                again = now + CLEANUP_POLL_S
                server.later(again, lambda then: self._delete(server, resource, name, uid, then))
                return
            end = ("InstanceDeletionCompleted", "removed all instances")
        else:
            end = ("NeverEstablished", "resource was never established")
        set_condition(current, ("Terminating", "False", *end), now)
        left = [one for one in current["metadata"]["finalizers"] if one != CLEANUP_FINALIZER]
        current["metadata"]["finalizers"] = left
        server.update_status(resource, current, now, AlwaysAllow.APISERVER)


def _delete_all_objects(server: ServerContext, custom: Resource, now: float) -> bool:
    """Delete the objects of a kind; False if there were none."""
    found = False
    for one in list(server.list(custom)):
        meta = one["metadata"]
        found = True
        if not meta.get("deletionTimestamp"):
            with suppress(ApiError):
                server.delete(custom, meta.get("namespace", ""), meta["name"], now)
    return found


def custom_resource_path(definition: Tree) -> str:
    """The path of the kind that is defined."""
    return f"{definition['spec']['group']}/{definition['status']['acceptedNames']['plural']}"


def _recheck_names(server: ServerContext, removed: Tree, now: float) -> None:
    """Names were released: other definitions of the group may get them."""
    resource = server.registry.by_path(DEFINITIONS_PATH)
    if resource is None:
        return
    for one in list(server.list(resource)):
        same = one["spec"]["group"] == removed["spec"]["group"]
        if (
            same
            and not one["metadata"].get("deletionTimestamp")
            and _establish_step(server, one, now)
        ):
            server.update_status(resource, one, now, AlwaysAllow.APISERVER)


def _establish_step(server: ServerContext, current: Tree, now: float) -> bool:
    """Take the next step towards Established; False if there is none."""
    status = current["status"]
    if status["acceptedNames"] != current["spec"]["names"]:
        before = (dict(status["acceptedNames"]), condition_status(current, "NamesAccepted"))
        _accept_names(server, current, now)
        if before != (status["acceptedNames"], condition_status(current, "NamesAccepted")):
            return True
    accepted = condition_status(current, "NamesAccepted") == "True"
    if accepted and condition_status(current, "Established") != "True":
        text = "the initial names have been accepted"
        set_condition(current, ("Established", "True", "InitialNamesAccepted", text), now)
        return True
    if accepted and is_protected_group(current["spec"]["group"]):
        found = approval(current["metadata"].get("annotations", {}))
        kind = "KubernetesAPIApprovalPolicyConformant"
        return set_condition(current, (kind, found.status, found.reason, found.text), now)
    return False


def _names_in_use(server: ServerContext, current: Tree) -> tuple[set[str], set[str]]:
    """Names of resources and of kinds that are used in the group."""
    resources: set[str] = set()
    kinds: set[str] = set()
    found = server.registry.by_path(DEFINITIONS_PATH)
    for one in server.list(found) if found is not None else ():
        if one["spec"]["group"] == current["spec"]["group"]:
            names = one["status"]["acceptedNames"]
            resources |= {names["plural"], names.get("singular", ""), *names.get("shortNames", ())}
            kinds |= {names["kind"], names.get("listKind", "")}
    return resources, kinds


def _accept_names(server: ServerContext, current: Tree, now: float) -> None:
    wanted, accepted = current["spec"]["names"], current["status"]["acceptedNames"]
    resources, kinds = _names_in_use(server, current)
    reason, text = "", ""
    for name, used in (
        ("plural", resources),
        ("singular", resources),
        ("shortNames", resources),
        ("kind", kinds),
        ("listKind", kinds),
    ):
        problem = ", ".join(_conflicts(wanted.get(name), accepted.get(name), used))
        if problem:
            several = name == "shortNames" and ", " in problem
            reason = f"{name[0].upper()}{name[1:]}Conflict"
            text = f"[{problem}]" if several else problem
        elif name in wanted:
            accepted[name] = wanted[name]
        else:
            accepted.pop(name, None)
    if "categories" in wanted:
        accepted["categories"] = wanted["categories"]
    else:
        accepted.pop("categories", None)
    if reason:
        set_condition(current, ("NamesAccepted", "False", reason, text), now)
        if not condition_status(current, "Established"):
            not_all = "not all names are accepted"
            set_condition(current, ("Established", "False", "NotAccepted", not_all), now)
        return
    set_condition(current, ("NamesAccepted", "True", "NoConflicts", "no conflicts found"), now)
    if condition_status(current, "Established") != "True":
        initial = "the initial names have been accepted"
        set_condition(current, ("Established", "False", "Installing", initial), now)


def _conflicts(wanted: Any, accepted: Any, used: set[str]) -> Iterator[str]:
    own = accepted if isinstance(accepted, list) else [accepted]
    for name in wanted if isinstance(wanted, list) else [wanted]:
        if name and name not in own and name in used:
            yield f'"{name}" is already in use'


def condition_status(definition: Tree, kind: str) -> str:
    """The status of a condition; "" if there is none of that type."""
    found = conditions.find_condition(definition["status"]["conditions"] or (), kind)
    return str(found["status"]) if found is not None else ""


def set_condition(definition: Tree, wanted: tuple[str, str, str, str], now: float) -> bool:
    """Set a condition (type, status, reason, message); False if it is the same already."""
    kind, status, reason, text = wanted
    listed = definition["status"]["conditions"] = definition["status"]["conditions"] or []
    entry: Tree = {
        "type": kind,
        "status": status,
        "lastTransitionTime": None,
        "reason": reason,
        "message": text,
    }
    return conditions.set_condition(listed, entry, now)
