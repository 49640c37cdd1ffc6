"""Leader election: one of several schedulers leads, agreed through a Lease.

A candidate acquires a lease that is free, released, or not renewed for its whole duration, if no
other candidate was faster; the holder renews it. All times are of a local clock that goes on during
system sleep: what counts is when a change of the lease was *observed*, never the times in the
lease.

A holder may write until `deadline`: the renew deadline after its last successful renewal was
*sent*. That is before any other candidate can acquire the lease, since it must have observed it
unchanged for the longer lease duration. A holder that reaches its deadline has lost leadership for
good.

Source: client-go v1.36, tools/leaderelection.
"""

from __future__ import annotations

from enum import Enum
from typing import Any

import msgspec
import numpy as np

from stowplan.client.backoff import seconds_after
from stowplan.client.requests import ApiRequest, create_lease, read_lease, update_lease
from stowplan.client.responses import ApiResponse, decode_body, error_message
from stowplan.objects.encoding.duration import SECOND

JITTER = 1.2


class LeaderElectionConfig(msgspec.Struct, frozen=True):
    """Settings that all candidates share. Durations in seconds."""

    namespace: str
    name: str
    identity: str
    duration_s: float = 15.0
    renew_s: float = 10.0
    retry_s: float = 2.0

    @property
    def timeout_s(self) -> float:
        """Request timeout, in seconds."""
        return max(1.0, self.renew_s / 2)


class LeaseSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a Lease."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    lease_transitions: int | None = None
    acquire_time: str | None = None
    renew_time: str | None = None


class Lease(msgspec.Struct, frozen=True):
    """A Lease. metadata: complete, because a PUT must send it back."""

    metadata: dict[str, Any] = {}
    spec: LeaseSpec = LeaseSpec()

    @property
    def holder(self) -> str:
        """Identity of the holder, "" if none."""
        return self.spec.holder_identity or ""

    @property
    def version(self) -> str:
        """Resource version."""
        return str(self.metadata.get("resourceVersion", ""))


class ElectionRole(Enum):
    """State of a candidate."""

    WAITING = "waiting"
    LEADING = "leading"
    LOST = "lost"
    RELEASED = "released"


class LeaderElector:
    """One candidate.

    deadline: the time until which it may write, 0 for never. term: of leadership, grows with each
    change of leader. leader: last known holder. fault: the last error.
    """

    def __init__(self, election_config: LeaderElectionConfig, rng: np.random.Generator) -> None:
        self.election_config = election_config
        self.role = ElectionRole.WAITING
        self.deadline = 0
        self.term = 0
        self.leader = ""
        self.fault = ""
        self._rng = rng
        # The lease as last observed, and when this version was first observed.
        self._seen: Lease | None = None
        self._seen_at = 0
        self._must_read = True
        self._next_at = 0
        self._sent: ApiRequest | None = None
        self._sent_at = 0
        self._acquired = ""

    @property
    def acquired(self) -> str:
        """When the last known leader acquired the lease, in RFC 3339; "" if that is not known."""
        return "" if self._seen is None else self._seen.spec.acquire_time or ""

    def may_write(self, now: int) -> bool:
        """True while this candidate leads and its deadline has not passed."""
        return self.role is ElectionRole.LEADING and now < self.deadline

    # Requests.

    def next(self, now: int, moment: str) -> ApiRequest | int:
        """The request to make now, or the time until which to wait. moment: the current time in RFC
        3339 with microseconds."""
        if self.role is ElectionRole.LEADING and now >= self.deadline:
            why = self.fault or "request timed out"
            self._lose(f"not renewed within {self.election_config.renew_s:g} s: {why}")
        if self.role in (ElectionRole.LOST, ElectionRole.RELEASED):
            return now + SECOND
        if now < self._next_at:
            return self._next_at
        self._sent_at = now
        self._sent = self._request(now, moment)
        return self._sent

    def _request(self, now: int, moment: str) -> ApiRequest:
        election_config, seen = self.election_config, self._seen
        if self._must_read or not self._may_acquire(now):
            return read_lease(
                election_config.namespace, election_config.name, election_config.timeout_s
            )
        if seen is None:
            self._acquired = moment
            body = self._body(
                {"name": election_config.name, "namespace": election_config.namespace}, moment, 0
            )
            return create_lease(election_config.namespace, body, election_config.timeout_s)
        transitions = seen.spec.lease_transitions or 0
        if seen.holder != election_config.identity:
            transitions += 1
            self._acquired = moment
        self._acquired = self._acquired or seen.spec.acquire_time or moment
        body = self._body(seen.metadata, moment, transitions)
        return update_lease(
            election_config.namespace, election_config.name, body, election_config.timeout_s
        )

    def _may_acquire(self, now: int) -> bool:
        """True when the lease, as last observed, is free, expired or our own."""
        seen = self._seen
        if seen is None or seen.holder in ("", self.election_config.identity):
            return True
        return now >= self._expires_at(seen)

    def _expires_at(self, seen: Lease) -> int:
        """When an unchanged lease expires: after the longer of its own duration and ours."""
        lease_s = float(seen.spec.lease_duration_seconds or 0)
        return seconds_after(self._seen_at, max(self.election_config.duration_s, lease_s))

    def _body(self, meta: dict[str, Any], moment: str, transitions: int) -> dict[str, Any]:
        return {
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": meta,
            "spec": {
                "holderIdentity": self.election_config.identity,
                "leaseDurationSeconds": round(self.election_config.duration_s),
                "acquireTime": self._acquired,
                "renewTime": moment,
                "leaseTransitions": transitions,
            },
        }

    # Responses.

    def answered(self, answer: ApiResponse, now: int) -> None:
        """Handle the response to the last request."""
        request = self._sent
        assert request is not None
        if self.role in (ElectionRole.LOST, ElectionRole.RELEASED):
            return
        self._next_at = seconds_after(now, self._pause_s())
        if request.method == "GET":
            self._handle_read(answer, now)
        elif answer.is_done:
            self._handle_written(answer, now)
        else:
            self.fault = error_message(answer)
            # Another candidate was faster, or the outcome is unknown: read before the next try.
            self._must_read = True

    def _pause_s(self) -> float:
        retry_s = self.election_config.retry_s
        if self.role is ElectionRole.LEADING:
            return retry_s
        return retry_s * (1 + JITTER * float(self._rng.random()))

    def _handle_read(self, answer: ApiResponse, now: int) -> None:
        if answer.status == 404:
            if self.role is ElectionRole.LEADING:
                self._lose("the lease was deleted")
                return
            self.leader, self._seen = "", None
            self._must_read, self._next_at = False, now
            return
        lease = decode_body(answer.body, Lease) if answer.is_done else None
        if lease is None:
            self.fault = "the response is not a Lease" if answer.is_done else error_message(answer)
            return
        self._observe(lease, now)
        self._must_read = False
        if self.role is ElectionRole.LEADING and lease.holder != self.election_config.identity:
            self._lose(
                f"the lease is held by {lease.holder}" if lease.holder else "the lease was released"
            )
        elif self._may_acquire(now):
            self._next_at = now
        else:
            self._next_at = min(self._next_at, self._expires_at(lease))

    def _observe(self, lease: Lease, now: int) -> None:
        seen = self._seen
        self.leader = lease.holder
        if seen is None or (seen.version, seen.spec) != (lease.version, lease.spec):
            self._seen, self._seen_at = lease, now

    def _handle_written(self, answer: ApiResponse, now: int) -> None:
        lease = decode_body(answer.body, Lease)
        if lease is None or lease.holder != self.election_config.identity:
            self.fault = "the response is not the lease that was written"
            self._must_read = True
            return
        self._observe(lease, now)
        self._must_read = False
        self.fault = ""
        self.deadline = seconds_after(self._sent_at, self.election_config.renew_s)
        term = (lease.spec.lease_transitions or 0) + 1
        if self.role is ElectionRole.WAITING:
            self.role, self.term = ElectionRole.LEADING, max(term, self.term + 1)
        self._next_at = seconds_after(self._sent_at, self.election_config.retry_s)

    def _lose(self, fault: str) -> None:
        self.role, self.fault = ElectionRole.LOST, fault
        self.deadline = 0

    def release(self, now: int, moment: str) -> ApiRequest | None:
        """Stop leading. Returns the request that releases the lease, so that others need not wait
        for its expiry; None if there is nothing to release."""
        was_leading, self.role = self.may_write(now), ElectionRole.RELEASED
        self.deadline = 0
        if not was_leading or self._seen is None:
            return None
        election_config, spec = self.election_config, self._seen.spec
        body = {
            "kind": "Lease",
            "apiVersion": "coordination.k8s.io/v1",
            "metadata": self._seen.metadata,
            "spec": {
                "holderIdentity": "",
                "leaseDurationSeconds": 1,
                "acquireTime": moment,
                "renewTime": moment,
                "leaseTransitions": spec.lease_transitions or 0,
            },
        }
        return update_lease(
            election_config.namespace, election_config.name, body, election_config.timeout_s
        )
