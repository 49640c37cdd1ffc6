"""Eviction: a deletion that asks the pod's disruption budget first.

The budget's controller counts how many disruptions are allowed; each eviction takes one of them
and notes the pod, so that the count holds until the controller has seen the pod go.

Source: kube-apiserver v1.36, pkg/registry/core/pod/storage/eviction.go.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stowplan.cluster.asking import META, dry_run_causes
from stowplan.cluster.controllers.api import BUDGETS
from stowplan.cluster.controllers.budgets import note_allowed
from stowplan.cluster.controllers.trees import condition, selects
from stowplan.cluster.errors import (
    ApiError,
    bad_request,
    conflict,
    forbidden,
    invalid,
    invalid_object,
    not_found,
    not_supported,
    success,
    too_many_requests,
)
from stowplan.cluster.meta import place
from stowplan.cluster.resource import Call, Deletion, Outcome, Resource
from stowplan.cluster.subresources.conditions import set_pod_condition
from stowplan.cluster.times import stamp

Tree = dict[str, Any]

_WOULD_VIOLATE = "Cannot evict pod as it would violate the pod's disruption budget."
_DISRUPTED_MOST = 2000
_RETRY_SECONDS = 10
_POLICIES = ("Foreground", "Background", "Orphan")
_BREAKING = "ignoreStoreReadErrorWithClusterBreakingPotential"


def evict(call: Call, body: Tree) -> Outcome:
    """Evict the pod named in the path, or say why not (yet)."""
    meta = body.setdefault("metadata", {})
    place(meta, call.namespace)
    if meta.get("name", "") != call.name:
        raise bad_request("name in URL does not match name in Eviction object")
    options = body.get("deleteOptions") or {}
    if options.get(_BREAKING):
        text = "can not be set for pod eviction, try after removing the option"
        cause = invalid(f"deleteOptions.{_BREAKING}", True, text)
        raise invalid_object("policy", "Eviction", call.name, [cause])
    call = replace(call, dry_run=_dry_run(call, options))
    pods = _resource(call, "pods")
    pod = call.server.get(pods, call.namespace, call.name)
    if pod is None:
        raise not_found("", "pods", call.name)
    if not _may_skip_budgets(pod):
        _ask_budgets(call, pod)
    _delete(call, pods, pod, options)
    return Outcome(201, success(code=201))


def _dry_run(call: Call, options: Tree) -> bool:
    """Whether query and body, which must not contradict each other, ask for a dry run."""
    told = options.get("dryRun") or []
    if call.dry_run and told and told != ["All"]:
        text = f"Non-matching dry-run options in request and content: [All] and [{' '.join(told)}]"
        # Differs: the original answers this with 500.
        raise bad_request(text)
    return call.dry_run or bool(told)


def _asked(options: Tree) -> Deletion:
    """DeleteOptions as the pipeline carries them."""
    policy = options.get("propagationPolicy") or (
        "Orphan" if options.get("orphanDependents") else ""
    )
    preconditions = options.get("preconditions") or {}
    return Deletion(
        grace_s=options.get("gracePeriodSeconds"),
        propagation=policy,
        uid=preconditions.get("uid") or "",
        version=preconditions.get("resourceVersion") or "",
    )


def _may_skip_budgets(pod: Tree) -> bool:
    """True for a pod that serves nobody: not yet started, ended, or on its way out."""
    phase = (pod.get("status") or {}).get("phase")
    return phase in ("Succeeded", "Failed", "Pending") or bool(
        pod["metadata"].get("deletionTimestamp")
    )


def _ask_budgets(call: Call, pod: Tree) -> None:
    """Take one disruption from the pod's budget; raises ApiError if there is none to take."""
    budgets = _resource(call, BUDGETS)
    labels = pod["metadata"].get("labels") or {}
    found = [
        budget
        for budget in call.server.list(budgets, call.namespace)
        if selects(budget["spec"].get("selector"), labels)
    ]
    if len(found) > 1:
        text = (
            "This pod has more than one PodDisruptionBudget, "
            "which the eviction subresource does not support."
        )
        raise ApiError(500, "", text)
    if not found or (not _is_ready(pod) and _may_go_unready(found[0])):
        return
    _take_one(call, budgets, found[0])


def _is_ready(pod: Tree) -> bool:
    ready = condition((pod.get("status") or {}).get("conditions") or (), "Ready")
    return ready is not None and ready.get("status") == "True"


def _may_go_unready(budget: Tree) -> bool:
    """Whether a pod that is not ready may go without counting."""
    if budget["spec"].get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy", 0)
    return bool(status.get("currentHealthy", 0) >= desired > 0)


def _take_one(call: Call, budgets: Resource, budget: Tree) -> None:
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
    if len(disrupted) > _DISRUPTED_MOST:
        why = "DisruptedPods map too big - too many evictions not confirmed by PDB controller"
        raise forbidden("policy", "poddisruptionbudget", name, why)
    if allowed == 0:
        raise _too_many(_why_none(budget), 0)
    if call.dry_run:
        return
    status["disruptionsAllowed"] = allowed - 1
    if allowed == 1:
        generation = status.get("observedGeneration", 0)
        note_allowed(status.setdefault("conditions", []), 0, generation, call.now)
    status["disruptedPods"] = {**disrupted, call.name: stamp(call.now)}
    call.server.update_status(budgets, budget, call.now)


def _why_none(budget: Tree) -> str:
    name = budget["metadata"]["name"]
    status = budget.get("status") or {}
    allowed = condition(status.get("conditions") or (), "DisruptionAllowed") or {}
    told = allowed.get("status") == "False" and allowed.get("message")
    healthy, desired = status.get("currentHealthy", 0), status.get("desiredHealthy", 0)
    if told and allowed.get("reason") == "SyncFailed":
        why = f"does not allow evicting pods currently because it failed sync: {told}"
    elif healthy <= desired:
        why = f"needs {desired} healthy pods and has {healthy} currently"
    elif told:
        why = f"does not allow evicting pods currently ({allowed.get('reason')}): {told}"
    else:
        why = "does not allow evicting pods currently"
    return f"The disruption budget {name} {why}"


def _too_many(cause: str, seconds: int) -> ApiError:
    error = too_many_requests(_WOULD_VIOLATE, seconds)
    causes = [{"reason": "DisruptionBudget", "message": cause}]
    error.details = {"causes": causes, **(error.details or {})}
    return error


def _check_options(options: Tree) -> None:
    """Raises ApiError 422 for options that no deletion may have."""
    causes = dry_run_causes(options.get("dryRun") or [])
    policy = options.get("propagationPolicy")
    if policy is not None and policy not in _POLICIES:
        causes.append(not_supported("propagationPolicy", policy, (*_POLICIES, "nil")))
    if policy is not None and options.get("orphanDependents") is not None:
        text = "orphanDependents and deletionPropagation cannot be both set"
        causes.insert(0, invalid("propagationPolicy", policy, text))
    if causes:
        raise invalid_object(META, "DeleteOptions", "", causes)


def _delete(call: Call, pods: Resource, pod: Tree, options: Tree) -> None:
    """Mark the pod as disrupted and delete it, under the caller's preconditions."""
    asked = _asked(options)
    if call.dry_run:
        _check_options(options)
        return

    def mark(tree: Tree) -> None:
        _check(tree, "UID", asked.uid, tree["metadata"]["uid"], "deleted and then recreated")
        version = tree["metadata"]["resourceVersion"]
        _check(tree, "ResourceVersion", asked.version, version, "modified")
        entry = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
        }
        set_pod_condition(tree, entry, call.now)

    name = pod["metadata"]["name"]
    marked = call.server.modify(pods, call.namespace, name, mark, call.now, "status", call.user)
    if marked is None:
        raise not_found("", "pods", name)
    _check_options(options)
    if asked.version:
        asked.version = marked["metadata"]["resourceVersion"]
    call.server.delete(pods, call.namespace, name, call.now, asked, call.user)


def _check(pod: Tree, what: str, wanted: str, have: str, happened: str) -> None:
    if wanted and wanted != have:
        why = (
            f"the {what} in the precondition ({wanted}) does not match the {what} in record "
            f"({have}). The object might have been {happened}"
        )
        raise conflict("", "Pod", pod["metadata"]["name"], why)


def _resource(call: Call, path: str) -> Resource:
    found = call.server.registry.by_path(path)
    if found is None:
        raise not_found("", "pods", call.name)
    return found
