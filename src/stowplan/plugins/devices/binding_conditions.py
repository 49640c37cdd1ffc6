"""Binding conditions of allocated devices: ready, failed, or waited for too long.

Source: kube-scheduler v1.36, plugins/dynamicresources/dynamicresources.go (isClaimReadyForBinding,
isClaimTimeout).
"""

from __future__ import annotations

import datetime

from stowplan.objects.devices.device_claim import (
    AllocatedDeviceStatus,
    DeviceCondition,
    DeviceResult,
    ResourceClaim,
)


class DeviceBindingFailed(Exception):
    """A device reports that it cannot be prepared."""


def is_ready_for_binding(claim: ResourceClaim) -> bool:
    """True where no device of the claim is waited for; raises DeviceBindingFailed."""
    if claim.status.allocation is None:
        return False
    for result in claim.status.allocation.devices.results:
        if not result.binding_conditions:
            continue
        state = _state_of(claim, result)
        if state is None:
            return False
        for kind in result.binding_failure_conditions:
            failed = _condition(state, kind)
            if failed is not None and failed.status == "True":
                raise DeviceBindingFailed(
                    f"device binding failed: claim={claim.name}, reason={failed.reason}, "
                    f'message="{failed.message}"'
                )
        for kind in result.binding_conditions:
            found = _condition(state, kind)
            if found is None or found.status != "True":
                return False
    return True


def is_overdue(claim: ResourceClaim, now: datetime.datetime, timeout: datetime.timedelta) -> bool:
    """True where a claim with binding conditions was allocated longer ago than the timeout."""
    allocation = claim.status.allocation
    if allocation is None or allocation.allocation_timestamp is None:
        return False
    if not any(result.binding_conditions for result in allocation.devices.results):
        return False
    return allocation.allocation_timestamp + timeout < now


def has_binding_conditions(claim: ResourceClaim) -> bool:
    """True where a device of the claim must report that it is ready."""
    allocation = claim.status.allocation
    return allocation is not None and any(
        result.binding_conditions for result in allocation.devices.results
    )


def _state_of(claim: ResourceClaim, result: DeviceResult) -> AllocatedDeviceStatus | None:
    place = (result.driver, result.pool, result.device)
    for one in claim.status.devices:
        if (one.driver, one.pool, one.device) == place:
            return one
    return None


def _condition(state: AllocatedDeviceStatus, kind: str) -> DeviceCondition | None:
    return next((one for one in state.conditions if one.type == kind), None)
