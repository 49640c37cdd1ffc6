"""A client that asks too often is told when to come back."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import User
from stowplan.apiserver.auth.flow_control import RequestLimits, RequestRateLimiter

BUSY = User("busy")
MASTER = User("root", groups=("system:masters",))


def admitted(
    flow: RequestRateLimiter, user: User, times: list[float], peer: str = "h:1"
) -> list[bool]:
    answers = []
    for now in times:
        try:
            flow.admit(user, peer, now)
        except ApiError as refused:
            # Any other refusal counts as an admission, which no test expects.
            answers.append(refused.code != 429)
        else:
            answers.append(True)
    return answers


def test_a_burst_then_the_rate() -> None:
    flow = RequestRateLimiter(RequestLimits(rate_per_s=2, burst=3))
    assert admitted(flow, BUSY, [0.0] * 5) == [True] * 3 + [False] * 2
    assert admitted(flow, BUSY, [0.4, 0.5, 0.6, 1.0]) == [False, True, False, True]


def test_clients_do_not_share_and_masters_are_exempt() -> None:
    flow = RequestRateLimiter(RequestLimits(rate_per_s=1, burst=1))
    assert admitted(flow, BUSY, [0.0, 0.0]) == [True, False]
    assert admitted(flow, User("other"), [0.0]) == [True]
    assert admitted(flow, BUSY, [0.0], "elsewhere:9") == [True]
    assert admitted(flow, BUSY, [0.0], "h:2") == [False]
    assert admitted(flow, MASTER, [0.0] * 50) == [True] * 50


def test_retry_after_is_long_enough() -> None:
    flow = RequestRateLimiter(RequestLimits(rate_per_s=0.1, burst=1))
    flow.admit(BUSY, "h:1", 0.0)
    with pytest.raises(ApiError) as refused:
        flow.admit(BUSY, "h:1", 1.0)
    wait_s = int(dict(refused.value.headers)["Retry-After"])
    assert refused.value.details == {"retryAfterSeconds": wait_s}
    flow.admit(BUSY, "h:1", 1.0 + wait_s)


def test_forgets_the_clients_seen_least_recently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stowplan.apiserver.auth.flow_control._CLIENTS_MAX", 3)
    flow = RequestRateLimiter(RequestLimits(rate_per_s=1, burst=1))
    for number in range(10):
        flow.admit(User(f"u{number}"), "h:1", 0.0)
    assert len(flow._buckets) == 3
    assert admitted(flow, User("u9"), [0.0]) == [False]


def test_problems() -> None:
    assert RequestLimits().problems() == []
    assert len(RequestLimits(rate_per_s=0, burst=0).problems()) == 2


def never_more(flow: RequestRateLimiter, gaps: list[float], limits: RequestLimits) -> None:
    """In any stretch of time no more pass than the burst and the rate allow."""
    times = [sum(gaps[: i + 1]) for i in range(len(gaps))]
    passed = [now for now, ok in zip(times, admitted(flow, BUSY, times), strict=True) if ok]
    for i, start in enumerate(passed):
        for j in range(i, len(passed)):
            allowed = limits.burst + (passed[j] - start) * limits.rate_per_s
            assert j - i + 1 <= allowed + 1e-6


GAPS = st.lists(st.sampled_from([0.0, 0.01, 0.1, 0.5, 2.0]), min_size=1, max_size=40)
LIMITS = st.builds(
    RequestLimits, rate_per_s=st.sampled_from([0.5, 1.0, 5.0]), burst=st.integers(1, 5)
)


@given(GAPS, LIMITS)
def test_never_more_than_burst_and_rate(gaps: list[float], limits: RequestLimits) -> None:
    never_more(RequestRateLimiter(limits), gaps, limits)


def test_a_bucket_without_a_rim_is_caught() -> None:
    class Rimless(RequestRateLimiter):
        """Saves up without end."""

        def admit(self, user: User, peer: str, now: float) -> None:
            key = (user.name, "h")
            left, since = self._buckets.pop(key, (float(self.limits.burst), now))
            left += (now - since) * self.limits.rate_per_s
            self._buckets[key] = (left - 1.0, now)
            if left < 1.0:
                raise ApiError(429, "", "", headers=(("Retry-After", "1"),))

    limits = RequestLimits(rate_per_s=5, burst=1)
    with pytest.raises(AssertionError):
        never_more(Rimless(limits), [0.0, 2.0, 0.0, 0.0, 0.0], limits)
