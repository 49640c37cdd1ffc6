"""Eviction subresource of pods: a deletion that the pod's disruption budget must allow.

The disruption controller sets how many disruptions are allowed; each eviction takes one and records
the pod in the status, so that the number is right until the controller observes the deletion.

Source: kube-apiserver v1.36, pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from msgspec.structs import replace

from stowplan.apis.kind.conditions import find_condition, set_pod_condition
from stowplan.apis.machinery.errors import (
    ApiError,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_object,
    not_found,
    not_supported,
    success_status,
    too_many_requests,
)
from stowplan.apis.machinery.object_meta import META_GROUP, set_namespace
from stowplan.apis.machinery.resource import ApiCall, Resource, Subresource, SubresourceResult
from stowplan.apis.machinery.timestamps import format_time
from stowplan.apis.policy.pod_disruption_budget import PATH, set_disruption_allowed
from stowplan.apis.schema import kind_schema
from stowplan.apis.validation import field_checks
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions

TYPES = """
Eviction -- evicts a pod if its disruption budgets allow it.
  +PartialObjectMetadata
  deleteOptions DeleteOptions?
"""
_WOULD_VIOLATE = "Cannot evict pod as it would violate the pod's disruption budget."
_DISRUPTED_PODS_MAX = 2000
_RETRY_SECONDS = 10
_POLICIES = ("Foreground", "Background", "Orphan")
_IGNORE_READ_ERROR_FIELD = "ignoreStoreReadErrorWithClusterBreakingPotential"


def evict(call: ApiCall, body: Tree) -> SubresourceResult:
    """Evict the pod of the path. Raises ApiError 429 if no disruption is allowed."""
    meta = body.setdefault("metadata", {})
    set_namespace(meta, call.namespace)
    if meta.get("name", "") != call.name:
        raise bad_request("name in URL does not match name in Eviction object")
    options = body.get("deleteOptions") or {}
    if options.get(_IGNORE_READ_ERROR_FIELD):
        text = "can not be set for pod eviction, try after removing the option"
        cause = invalid(f"deleteOptions.{_IGNORE_READ_ERROR_FIELD}", True, text)
        raise invalid_object("policy", "Eviction", call.name, [cause])
    call = replace(call, dry_run=_dry_run(call, options))
    pods = _resource(call, "pods")
    pod = call.objects.get(pods, call.namespace, call.name)
    if pod is None:
        raise not_found("", "pods", call.name)
    if not _is_exempt_from_budgets(pod):
        _take_disruption_of_pod(call, pod)
    _delete(call, pods, pod, options)
    return SubresourceResult(201, success_status(code=201))


def _dry_run(call: ApiCall, options: Tree) -> bool:
    """True for a dry run; query and body must agree."""
    requested = options.get("dryRun") or []
    if call.dry_run and requested and requested != ["All"]:
        given = " ".join(requested)
        text = f"Non-matching dry-run options in request and content: [All] and [{given}]"
        # Differs: the original answers this with 500.
        raise bad_request(text)
    return call.dry_run or bool(requested)


def _delete_options(options: Tree) -> DeleteOptions:
    policy = options.get("propagationPolicy") or (
        "Orphan" if options.get("orphanDependents") else ""
    )
    preconditions = options.get("preconditions") or {}
    return DeleteOptions(
        grace_s=options.get("gracePeriodSeconds"),
        propagation=policy,
        uid=preconditions.get("uid") or "",
        version=preconditions.get("resourceVersion") or "",
    )


def _is_exempt_from_budgets(pod: Tree) -> bool:
    """True for a pod that is pending, finished or being deleted."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(
        pod["metadata"].get("deletionTimestamp")
    )


def _take_disruption_of_pod(call: ApiCall, pod: Tree) -> None:
    """Take one disruption from the pod's budget; raises ApiError if none is allowed."""
    budgets = _resource(call, PATH)
    labels = pod["metadata"].get("labels") or {}
    found = [
        budget
        for budget in call.objects.list(budgets, call.namespace)
        if field_checks.matches(budget["spec"].get("selector"), labels)
    ]
    if len(found) > 1:
        text = (
            "This pod has more than one PodDisruptionBudget, "
            "which the eviction subresource does not support."
        )
        raise ApiError(500, "", text)
    if not found or (not _is_ready(pod) and _allows_unready_eviction(found[0])):
        return
    _take_disruption(call, budgets, found[0])


def _is_ready(pod: Tree) -> bool:
    ready = find_condition((pod.get("status") or {}).get("conditions") or (), "Ready")
    return ready is not None and ready.get("status") == "True"


def _allows_unready_eviction(budget: Tree) -> bool:
    """True if evicting an unready pod takes no disruption."""
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(status.get("currentHealthy", 0) >= desired > 0)


def _take_disruption(call: ApiCall, budgets: Resource, budget: Tree) -> None:
    name = budget["metadata"]["name"]
    status = budget.setdefault("status", {})
    if status.get("observedGeneration", 0) < budget["metadata"].get("generation", 0):
        text = f"The disruption budget {name} is still being processed by the server."
        raise _too_many(text, _RETRY_SECONDS)
    allowed = status.get("disruptionsAllowed", 0)
    disrupted = dict(status.get("disruptedPods") or {})
    if allowed < 0:
        why = "pdb disruptions allowed is negative"
        raise forbidden("policy", "poddisruptionbudget", name, why)
    if len(disrupted) > _DISRUPTED_PODS_MAX:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden("policy", "poddisruptionbudget", name, why)
    if allowed == 0:
        raise _too_many(_no_disruption_text(budget), 0)
    if call.dry_run:
        return
    status["disruptionsAllowed"] = allowed - 1
    if allowed == 1:
        generation = status.get("observedGeneration", 0)
        set_disruption_allowed(status.setdefault("conditions", []), 0, generation, call.now)
    status["disruptedPods"] = {**disrupted, call.name: format_time(call.now)}
    call.objects.update_status(budgets, budget, call.now)


def _no_disruption_text(budget: Tree) -> str:
    name = budget["metadata"]["name"]
    status = budget.get("status") or {}
    allowed = find_condition(status.get("conditions") or (), "DisruptionAllowed") or {}
    message = allowed.get("status") == "False" and allowed.get("message")
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if message and allowed.get("reason") == "SyncFailed":
        why = f"does not allow evicting pods currently because it failed sync: {message}"
    elif healthy <= desired:
        why = f"needs {desired} healthy pods and has {healthy} currently"
    elif message:
        why = f"does not allow evicting pods currently ({allowed.get('reason')}): {message}"
    else:
        why = "does not allow evicting pods currently"
    return f"The disruption budget {name} {why}"


def _too_many(cause: str, seconds: int) -> ApiError:
    error = too_many_requests(_WOULD_VIOLATE, seconds)
    causes = [{"reason": "DisruptionBudget", "message": cause}]
    error.details = {"causes": causes, **(error.details or {})}
    return error


def _check_options(options: Tree) -> None:
    causes = field_checks.dry_run_causes(options.get("dryRun") or [])
    policy = options.get("propagationPolicy")
    if policy is not None and policy not in _POLICIES:
        causes.append(not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
    if policy is not None and options.get("orphanDependents") is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        causes.insert(0, invalid("propagationPolicy", policy, text))
    if causes:
        raise invalid_object(META_GROUP, "DeleteOptions", "", causes)


def _delete(call: ApiCall, pods: Resource, pod: Tree, options: Tree) -> None:
    """Mark the pod as disrupted and delete it, under the caller's preconditions."""
    delete_options = _delete_options(options)
    if call.dry_run:
        _check_options(options)
        return

    def mark(tree: Tree) -> None:
        _check(
            tree, "UID", delete_options.uid, tree["metadata"]["uid"], "deleted and then recreated"
        )
        version = tree["metadata"]["resourceVersion"]
        _check(tree, "ResourceVersion", delete_options.version, version, "modified")
        entry = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        set_pod_condition(tree, entry, call.now)

    name = pod["metadata"]["name"]
    marked = call.objects.modify(pods, call.namespace, name, mark, call.now, "eviction", call.user)
    if marked is None:
        raise not_found("", "pods", name)
    _check_options(options)
    if delete_options.version:
        delete_options.version = marked["metadata"]["resourceVersion"]
    call.objects.delete(pods, call.namespace, name, call.now, delete_options, call.user)


def _check(pod: Tree, what: str, wanted: str, have: str, happened: str) -> None:
    if wanted and wanted != have:
        why = (
            f"the {what} in the precondition ({wanted}) does not match the {what} in record "
            f"({have}). The object might have been {happened}"
        )
        raise conflict("", "Pod", pod["metadata"]["name"], why)


def _resource(call: ApiCall, path: str) -> Resource:
    found = call.objects.registry.by_path(path)
    if found is None:
        raise not_found("", "pods", call.name)
    return found


EVICTION_SUBRESOURCE = Subresource(
    "eviction",
    ("create",),
    act=evict,
    group="policy",
    version="v1",
    kind="Eviction",
    schema=kind_schema("policy/v1.Eviction", "policy"),
)
"""Of pods."""
