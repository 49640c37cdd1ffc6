"""Allocation results: what is written to the claims for a solution of the search.

Source: dynamic-resource-allocation v1.36, structured/internal/incubating/allocator_incubating.go
(Allocate, createNodeSelector).
"""

from __future__ import annotations

from stowplan.objects.devices.device_claim import (
    AllocatedConfiguration,
    AllocationResult,
    DeviceAllocation,
    DeviceResult,
    ResourceClaim,
)
from stowplan.objects.node import Node
from stowplan.objects.selectors import (
    NODE_NAME_FIELD,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from stowplan.plugins.devices.allocation_search import (
    ChosenDevice,
    FoundDevices,
    RequestPlan,
    SearchInput,
)
from stowplan.plugins.devices.pools.device_pools import AllocationError

GENERATED_SHARE_ID = "<generated>"
"""Share ID until the allocation is reserved."""


def allocation_results(
    given: SearchInput, node: Node, found: FoundDevices
) -> tuple[AllocationResult, ...]:
    """One result per claim; raises AllocationError."""
    results = []
    for claim, chosen, plans in zip(given.claims, found.devices, found.plans, strict=True):
        try:
            selector = _node_selector(chosen, node.name)
        except AllocationError as fault:
            raise AllocationError(f"create NodeSelector for claim {claim.name}: {fault}") from None
        devices = tuple(_device_result(one) for one in chosen)
        config = (*_class_config(plans), *_claim_config(claim, plans))
        results.append(AllocationResult(DeviceAllocation(devices, config), selector))
    return tuple(results)


def _device_result(chosen: ChosenDevice) -> DeviceResult:
    device = chosen.device.device
    driver, pool, name = chosen.device.id
    return DeviceResult(
        request=chosen.plan.full_name,
        driver=driver,
        pool=pool,
        device=name,
        admin_access=True if chosen.plan.has_admin_access else None,
        tolerations=chosen.plan.request.tolerations,
        binding_conditions=device.binding_conditions or (),
        binding_failure_conditions=device.binding_failure_conditions,
        share_id=GENERATED_SHARE_ID if device.allow_multiple_allocations else None,
        consumed_capacity=dict(chosen.consumed),
    )


def _class_config(plans: list[RequestPlan]) -> list[AllocatedConfiguration]:
    """Settings of each class once, for all requests that use it, in the order of requests."""
    users: dict[str, list[RequestPlan]] = {}
    for plan in plans:
        users.setdefault(plan.device_class.name, []).append(plan)
    return [
        AllocatedConfiguration("FromClass", tuple(plan.full_name for plan in same), one.opaque)
        for same in users.values()
        for one in same[0].device_class.spec.config
    ]


def _claim_config(claim: ResourceClaim, plans: list[RequestPlan]) -> list[AllocatedConfiguration]:
    """Settings of the claim; one that names several requests is repeated for each of them."""
    made = []
    for config in claim.spec.devices.config:
        one = AllocatedConfiguration("FromClaim", config.requests, config.opaque)
        if not config.requests:
            made.append(one)
            continue
        for request, plan in zip(claim.spec.devices.requests, plans, strict=True):
            if request.name in config.requests or (
                plan.parent is not None and plan.full_name in config.requests
            ):
                made.append(one)
    return made


def _node_selector(chosen: list[ChosenDevice], node_name: str) -> NodeSelector | None:
    fields: list[NodeSelectorRequirement] = []
    expressions: list[NodeSelectorRequirement] = []
    for one in chosen:
        device, spec = one.device.device, one.device.slice.spec
        source = device if spec.per_device_node_selection else spec
        if source.node_name is not None or device.binds_to_node:
            only = NodeSelectorRequirement(NODE_NAME_FIELD, "In", (node_name,))
            return NodeSelector((NodeSelectorTerm(match_fields=(only,)),))
        terms = source.node_selector.node_selector_terms if source.node_selector else ()
        if len(terms) > 1:
            text = f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms"
            raise AllocationError(text)
        for term in terms:
            _add_new(fields, term.match_fields)
            _add_new(expressions, term.match_expressions)
    if not fields and not expressions:
        return None
    return NodeSelector((NodeSelectorTerm(tuple(expressions), tuple(fields)),))


def _add_new(
    held: list[NodeSelectorRequirement], added: tuple[NodeSelectorRequirement, ...]
) -> None:
    for one in added:
        same = (one.key, one.operator, frozenset(one.values))
        if all(same != (r.key, r.operator, frozenset(r.values)) for r in held):
            held.append(one)
