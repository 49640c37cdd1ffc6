"""Leader election against a lease as an API server stores it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.client.leader_election import ElectionRole, LeaderElectionConfig, LeaderElector
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import ApiResponse
from stowplan.objects.encoding.duration import SECOND
from tests.soak import examples

MOMENT = "2026-01-01T00:00:00.000000Z"


class Lease:
    """A lease as the server keeps it."""

    def __init__(self) -> None:
        self.tree: dict[str, Any] | None = None
        self.version = 0

    def answer(self, request: ApiRequest) -> ApiResponse:
        if request.method == "GET":
            return (
                ApiResponse(404)
                if self.tree is None
                else ApiResponse(200, json.dumps(self.tree).encode())
            )
        body = json.loads(request.body)
        if request.method == "POST" and self.tree is not None:
            return ApiResponse(409)
        if request.method == "PUT":
            if self.tree is None:
                return ApiResponse(404)
            if body["metadata"]["resourceVersion"] != self.tree["metadata"]["resourceVersion"]:
                return ApiResponse(409)
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.tree = body
        code = 201 if request.method == "POST" else 200
        return ApiResponse(code, json.dumps(body).encode())


def contender(name: str, seed: int = 1) -> LeaderElector:
    return LeaderElector(
        LeaderElectionConfig("kube-system", "stowplan", name), np.random.default_rng(seed)
    )


def step(election: LeaderElector, lease: Lease, now: int) -> int:
    """Send the candidate's requests until it waits; returns until when."""
    for _ in range(10):
        request = election.next(now, MOMENT)
        if isinstance(request, int):
            return request
        election.answered(lease.answer(request), now)
    raise AssertionError("it asks without end")


def at(seconds: float) -> int:
    return round((1000 + seconds) * SECOND)


def test_the_first_candidate_leads_and_renews_every_two_seconds() -> None:
    lease, first = Lease(), contender("a")
    assert step(first, lease, at(0)) == at(2)
    assert first.may_write(at(0))
    assert first.term == 1
    assert first.deadline == at(10)
    step(first, lease, at(2))
    assert first.deadline == at(12)
    assert lease.tree is not None
    assert first.acquired == lease.tree["spec"]["acquireTime"] == MOMENT
    assert lease.tree["spec"]["leaseTransitions"] == 0


def test_the_second_waits_until_the_lease_has_stood_still_for_its_duration() -> None:
    lease, first, second = Lease(), contender("a"), contender("b", 2)
    step(first, lease, at(0))
    step(second, lease, at(1))
    assert second.role is ElectionRole.WAITING
    step(first, lease, at(2))
    now = at(3)
    while now < at(30) and second.role is ElectionRole.WAITING:
        now = step(second, lease, now)
    assert second.role is ElectionRole.LEADING
    # It saw the renewal of second 2 between 3 and 7, and waits 15 s from then on.
    assert at(18) <= now <= at(24)
    assert second.term == 2


def test_a_released_lease_is_acquired_at_the_next_retry() -> None:
    lease, first, second = Lease(), contender("a"), contender("b", 2)
    step(first, lease, at(0))
    now = step(second, lease, at(1))
    request = first.release(at(2), MOMENT)
    assert request is not None
    lease.answer(request)
    assert not first.may_write(at(2))
    step(second, lease, now)
    assert second.may_write(now)


def test_a_leader_whose_deadline_is_over_has_lost_for_good() -> None:
    lease, first = Lease(), contender("a")
    step(first, lease, at(0))
    assert first.may_write(at(9.999))
    assert not first.may_write(at(10))
    step(first, lease, at(10))
    assert first.role is ElectionRole.LOST
    assert "10 s" in first.fault
    assert not first.may_write(at(10))
    assert first.release(at(11), MOMENT) is None


def test_the_deadline_counts_from_when_a_renewal_was_sent() -> None:
    lease, first = Lease(), contender("a")
    step(first, lease, at(0))
    request = first.next(at(2), MOMENT)
    assert isinstance(request, ApiRequest)
    first.answered(lease.answer(request), at(6))
    assert first.deadline == at(12)


@pytest.mark.parametrize(
    "fault", [ApiResponse(0, fault="reset"), ApiResponse(500), ApiResponse(429), ApiResponse(409)]
)
def test_a_failed_renewal_is_read_and_retried(fault: ApiResponse) -> None:
    lease, first = Lease(), contender("a")
    step(first, lease, at(0))
    assert isinstance(first.next(at(2), MOMENT), ApiRequest)
    first.answered(fault, at(2))
    request = first.next(at(4), MOMENT)
    assert isinstance(request, ApiRequest)
    assert request.method == "GET"
    first.answered(lease.answer(request), at(4))
    step(first, lease, at(4))
    assert first.deadline == at(14)
    assert first.term == 1


def test_a_lost_answer_to_taking_it_leads_all_the_same() -> None:
    lease, first = Lease(), contender("a")
    request = first.next(at(0), MOMENT)
    assert isinstance(request, ApiRequest)
    first.answered(lease.answer(request), at(0))
    request = first.next(at(0), MOMENT)
    assert isinstance(request, ApiRequest)
    assert request.method == "POST"
    lease.answer(request)
    first.answered(ApiResponse(0, fault="reset"), at(0.1))
    now = first.next(at(0.1), MOMENT)
    assert isinstance(now, int)
    step(first, lease, now)
    assert first.may_write(now)
    assert first.term == 1


def test_a_lease_taken_by_others_or_deleted_is_lost() -> None:
    for tree in (None, "other"):
        lease, first = Lease(), contender("a")
        step(first, lease, at(0))
        assert lease.tree is not None
        if tree is None:
            lease.tree = None
        else:
            lease.tree["spec"]["holderIdentity"] = "b"
            lease.tree["metadata"]["resourceVersion"] = "77"
        step(first, lease, at(2))
        step(first, lease, at(4))
        assert first.role is ElectionRole.LOST


class Hasty(LeaderElector):
    """Wrong: acquires a lease by its own times instead of the observed ones."""

    def _expires_at(self, seen: Any) -> int:
        return self._seen_at + 8 * SECOND


class Late(LeaderElector):
    """Wrong: writes until long after its last renewal."""

    def may_write(self, now: int) -> bool:
        return self.role is ElectionRole.LEADING and now < self.deadline + 8 * SECOND


Play = list[tuple[int, float, str]]
plays = st.lists(
    st.tuples(
        st.integers(0, 2),
        st.floats(0.05, 6),
        st.sampled_from(["well", "well", "well", "lost", "reply lost", "asleep"]),
    ),
    max_size=120,
)


def played(kind: type[LeaderElector], play: Play) -> None:
    """Three candidates whose requests and responses are lost and that are paused at times; never
    may two of them write."""
    lease = Lease()
    rng = np.random.default_rng(5)
    everybody = [kind(LeaderElectionConfig("ns", "x", name), rng) for name in "abc"]
    asleep_until = [0, 0, 0]
    now = at(0)
    for who, seconds, how in play:
        now += round(seconds * SECOND)
        one = everybody[who]
        if now < asleep_until[who]:
            continue
        if how == "asleep":
            asleep_until[who] = now + 12 * SECOND
            continue
        # Whoever stood still goes on where it was: it may write before it looks at the lease.
        for _ in range(3):
            request = one.next(now, MOMENT)
            if isinstance(request, int):
                break
            if how == "lost":
                one.answered(ApiResponse(0, fault="lost"), now)
                continue
            answer = lease.answer(request)
            one.answered(ApiResponse(0, fault="reply lost") if how == "reply lost" else answer, now)
        writers = [one.election_config.identity for one in everybody if one.may_write(now)]
        assert len(writers) <= 1, writers
        election_config = [one.term for one in everybody if one.may_write(now)]
        assert all(one.term <= term for one in everybody for term in election_config)


@settings(max_examples=examples(200), deadline=None)
@given(plays)
def test_never_may_two_write(play: Play) -> None:
    played(LeaderElector, play)


@pytest.mark.parametrize("wrong", [Hasty, Late])
def test_contenders_that_are_wrong_are_caught(wrong: type[LeaderElector]) -> None:
    attempts: Play = [(0, 1.0, "well"), (1, 0.1, "well")]
    attempts += [(1, 0.5, "well")] * 40
    with pytest.raises(AssertionError):
        played(wrong, attempts)
