"""Which allocated claims have devices with NoExecute taints, and when their pods have to go.

Source: kube-controller-manager v1.36, pkg/controller/devicetainteviction (pool, claimEvictionTime,
ruleMatchesDevice).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from stowplan.apis.machinery.timestamps import parse_time
from stowplan.controller_runtime.object_index import Key

NO_EXECUTE = "NoExecute"


class _Taint(msgspec.Struct, frozen=True, rename="camel"):
    key: str = ""
    value: str = ""
    effect: str = ""
    time_added: str = ""


class _Device(msgspec.Struct, frozen=True):
    name: str
    taints: tuple[_Taint, ...] = ()


class _Pool(msgspec.Struct, frozen=True):
    name: str
    generation: int = 0


class _SliceSpec(msgspec.Struct, frozen=True):
    driver: str
    pool: _Pool
    devices: tuple[_Device, ...] | None = None


class _Slice(msgspec.Struct, frozen=True):
    spec: _SliceSpec


class _Toleration(msgspec.Struct, frozen=True, rename="camel"):
    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""
    toleration_seconds: int | None = None

    def covers(self, taint: _Taint) -> bool:
        """True for a toleration of NoExecute that matches the taint. One without effect does not
        count, as in the original."""
        if self.effect != NO_EXECUTE or (self.key and self.key != taint.key):
            return False
        return self.operator == "Exists" or self.value == taint.value


class _AllocatedDevice(msgspec.Struct, frozen=True):
    driver: str
    pool: str
    device: str
    tolerations: tuple[_Toleration, ...] = ()


class _Devices(msgspec.Struct, frozen=True):
    results: tuple[_AllocatedDevice, ...] = ()


class _Allocation(msgspec.Struct, frozen=True):
    devices: _Devices = _Devices()


class _Consumer(msgspec.Struct, frozen=True, rename="camel"):
    resource: str
    name: str
    uid: str
    api_group: str = ""


class _ClaimStatus(msgspec.Struct, frozen=True, rename="camel"):
    allocation: _Allocation | None = None
    reserved_for: tuple[_Consumer, ...] | None = ()


class _Claim(msgspec.Struct, frozen=True):
    status: _ClaimStatus | None = None


class _Selector(msgspec.Struct, frozen=True):
    driver: str | None = None
    pool: str | None = None
    device: str | None = None

    def selects(self, driver: str, pool: str, device: str) -> bool:
        return (
            self.driver in (None, driver)
            and self.pool in (None, pool)
            and self.device in (None, device)
        )


class _RuleSpec(msgspec.Struct, frozen=True, rename="camel"):
    taint: _Taint
    device_selector: _Selector | None = None


class TaintRule(msgspec.Struct, frozen=True):
    """A DeviceTaintRule. One without selector evicts no pod, although the scheduler then counts
    all devices as tainted: as in the original."""

    spec: _RuleSpec

    def selects(self, driver: str, pool: str, device: str) -> bool:
        """True for a device that the rule taints."""
        selector = self.spec.device_selector
        return selector is not None and selector.selects(driver, pool, device)

    def as_evicting(self) -> TaintRule:
        """The rule as if its effect was NoExecute."""
        taint = msgspec.structs.replace(self.spec.taint, effect=NO_EXECUTE)
        return TaintRule(msgspec.structs.replace(self.spec, taint=taint))


class AllocatedClaim(NamedTuple):
    """A claim with devices. consumers: uid -> name of the pods for which it is reserved."""

    results: tuple[_AllocatedDevice, ...]
    consumers: dict[str, str]


class DeviceEviction(NamedTuple):
    """at: Unix seconds when pods have to go. rules: names of the rules whose taints are a
    reason."""

    at: float
    rules: frozenset[str]


_SLICE, _CLAIM = msgspec.json.Decoder(_Slice), msgspec.json.Decoder(_Claim)
_RULE = msgspec.json.Decoder(TaintRule)


class DeviceTaintIndex:
    """Slices, rules and allocated claims of a cluster, kept by delta."""

    def __init__(self) -> None:
        """Nothing is known yet."""
        self.rules: dict[str, TaintRule] = {}
        self.claims: dict[Key, AllocatedClaim] = {}
        self._slices: dict[str, _SliceSpec] = {}
        self._of_pool: dict[tuple[str, str], dict[str, _SliceSpec]] = {}

    def put_slice(self, name: str, value: bytes | None) -> list[Key]:
        """Follow a slice, None: it is gone. Keys of the claims whose pods it may concern."""
        before = self._slices.pop(name, None)
        if before is not None:
            place = before.driver, before.pool.name
            del self._of_pool[place][name]
            if not self._of_pool[place]:
                del self._of_pool[place]
        now = None if value is None else _SLICE.decode(value).spec
        if now is not None:
            self._slices[name] = now
            self._of_pool.setdefault((now.driver, now.pool.name), {})[name] = now
        changed = [one for one in (before, now) if one is not None]
        pools = {(one.driver, one.pool.name) for one in changed}
        # All slices of the pools: another generation hides taints of the one before.
        held = [one for pool in pools for one in self._of_pool.get(pool, {}).values()]
        if before == now or not any(map(_is_evicting, (*changed, *held))):
            return []
        return [
            key
            for key, claim in self.claims.items()
            if any((one.driver, one.pool) in pools for one in claim.results)
        ]

    def put_rule(self, name: str, value: bytes | None) -> list[Key]:
        """Follow a rule, None: it is gone. Keys of the claims whose pods it may concern."""
        before = self.rules.pop(name, None)
        now = None if value is None else _RULE.decode(value)
        if now is not None:
            self.rules[name] = now
        if now == before:
            return []
        evicting = [
            one for one in (before, now) if one is not None and one.spec.taint.effect == NO_EXECUTE
        ]
        return [
            key
            for key, claim in self.claims.items()
            if any(rule.selects(*_place(one)) for one in claim.results for rule in evicting)
        ]

    def put_claim(self, key: Key, value: bytes | None) -> list[Key]:
        """Follow a claim, None: it is gone. Keys of the pods that it concerns, if any."""
        before = self.claims.pop(key, None)
        status = None if value is None else _CLAIM.decode(value).status
        now = None
        if status is not None and status.allocation is not None:
            consumers = {
                one.uid: one.name
                for one in status.reserved_for or ()
                if not one.api_group and one.resource == "pods"
            }
            now = self.claims[key] = AllocatedClaim(status.allocation.devices.results, consumers)
        held = [one for one in (before, now) if one is not None]
        if before == now or not any(self._has_taints(one) for one in held):
            return []
        names = dict.fromkeys(name for one in held for name in one.consumers.values())
        return [(key[0], name) for name in names]

    def pods_of(self, claim: Key) -> list[Key]:
        """Keys of the pods for which a claim is reserved."""
        held = self.claims.get(claim)
        return [] if held is None else [(claim[0], name) for name in held.consumers.values()]

    def eviction(self, claims: Iterable[Key], uid: str) -> DeviceEviction | None:
        """When a pod has to go that uses these claims; None: it may stay. uid: of the pod, for
        which the claims have to be reserved."""
        found = [
            eviction
            for key in claims
            if (claim := self.claims.get(key)) is not None and uid in claim.consumers
            for eviction in self._evictions(claim)
        ]
        if not found:
            return None
        rules = frozenset(name for one in found for name in one.rules)
        return DeviceEviction(min(one.at for one in found), rules)

    def selected_devices(self, rule: TaintRule) -> tuple[int, int]:
        """How many published and how many allocated devices a rule selects."""
        published = sum(
            rule.selects(driver, pool, device.name)
            for (driver, pool), slices in self._of_pool.items()
            for one in _newest(slices.values())
            for device in one.devices or ()
        )
        allocated = sum(
            rule.selects(*_place(one)) for claim in self.claims.values() for one in claim.results
        )
        return published, allocated

    def _has_taints(self, claim: AllocatedClaim) -> bool:
        return any(True for one in claim.results for _ in self._taints(one))

    def _taints(self, result: _AllocatedDevice) -> Iterator[tuple[_Taint, str]]:
        """NoExecute taints of an allocated device, with the name of the rule that adds it or ""."""
        slices = self._of_pool.get((result.driver, result.pool), {})
        device = next(
            (
                device
                for one in _newest(slices.values())
                for device in one.devices or ()
                if device.name == result.device
            ),
            None,
        )
        for taint in () if device is None else device.taints:
            if taint.effect == NO_EXECUTE:
                yield taint, ""
        for name, rule in self.rules.items():
            if rule.spec.taint.effect == NO_EXECUTE and rule.selects(*_place(result)):
                yield rule.spec.taint, name

    def _evictions(self, claim: AllocatedClaim) -> Iterator[DeviceEviction]:
        for result in claim.results:
            for taint, rule in self._taints(result):
                covering = [one for one in result.tolerations if one.covers(taint)]
                if any(one.toleration_seconds is None for one in covering):
                    continue
                limits = [max(one.toleration_seconds or 0, 0) for one in covering]
                since = parse_time(taint.time_added) if taint.time_added else 0.0
                at = since + min(limits, default=0)
                yield DeviceEviction(at, frozenset((rule,) if rule else ()))


def _place(result: _AllocatedDevice) -> tuple[str, str, str]:
    return result.driver, result.pool, result.device


def _newest(slices: Iterable[_SliceSpec]) -> list[_SliceSpec]:
    """The slices of the newest generation of a pool."""
    held = list(slices)
    generation = max((one.pool.generation for one in held), default=0)
    return [one for one in held if one.pool.generation == generation]


def _is_evicting(one: _SliceSpec) -> bool:
    """True for a slice with a NoExecute taint."""
    return any(
        taint.effect == NO_EXECUTE for device in one.devices or () for taint in device.taints
    )
