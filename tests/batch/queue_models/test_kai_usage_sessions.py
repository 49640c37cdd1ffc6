"""Sessions that usage over time makes due: queues take turns though nothing else changes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from stowplan.batch.queue_models.kai.model import kai_model, next_session
from stowplan.batch.queue_models.kai.state.kai_usage import KaiUsage, UsageRules
from stowplan.inputs.cluster_reader import read_cluster
from stowplan.messages.effects import Effect, Evict
from stowplan.objects.encoding.duration import SECOND
from stowplan.simulation.replay import Replay, ReplayOptions
from tests.batch.queue_models.test_kai_model import deciders, node, pod, queue

HOUR = 3600.0


def config(**params: str) -> str:
    usage = {"halfLifePeriod": "10m", "windowSize": "1h", **params}
    return yaml.safe_dump({"scheduler": "kai", "usageDBConfig": {"usageParams": usage}})


def waiting(name: str, of: str, gpus: int, at: str) -> dict[str, Any]:
    labels = {"kai.scheduler/queue": of}
    return pod(name, gpus=gpus, labels=labels, creationTimestamp=f"2026-01-01T{at}Z")


def cluster() -> list[dict[str, Any]]:
    return [
        node("n", 8),
        queue("top", 0),
        queue("red", 0, parent="top"),
        queue("blue", 0, parent="top"),
        waiting("r", "red", 8, "00:00:00"),
        waiting("b", "blue", 8, "00:02:00"),
    ]


def evictions(
    tmp_path: Path, text: str, until_s: float | None = 2 * HOUR, objects: Any = ()
) -> tuple[list[tuple[float, str]], int]:
    """When which pods lose their places, and the number of sessions."""
    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(objects or cluster()))
    chosen = deciders(text)
    scheduler = chosen.scheduler(rng=np.random.default_rng(0))
    run = Replay(read_cluster(path), scheduler, ReplayOptions(until_s=until_s))
    found = []

    def observe(effects: list[Effect]) -> None:
        now = run.event_queue.now / SECOND
        found.extend((now, one.name) for one in effects if isinstance(one, Evict))

    run.on_effects = observe
    run.run(lambda _: None, round(HOUR * SECOND))
    return found, scheduler.lanes.batch[0].number


def test_queues_take_turns_in_a_cluster_where_nothing_else_changes(tmp_path: Path) -> None:
    found, _ = evictions(tmp_path, config())
    assert [name for _, name in found] == ["r", "b", "r", "b"]


def test_only_changes_start_sessions_where_usage_does_not_count(tmp_path: Path) -> None:
    found, n_sessions = evictions(tmp_path, "scheduler: kai")
    assert found == []
    assert n_sessions < 10


def test_sessions_decide_as_those_of_each_second_do_at_most_an_interval_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    until_s = 1500.0
    minutes, n_minutes = evictions(tmp_path, config(), until_s)
    seconds, n_seconds = evictions(tmp_path, config(fetchInterval="1s"), until_s)
    # As KAI: a session each second, whether or not shares have changed.
    monkeypatch.setattr(kai_model, "next_session_in", lambda *_: 1.0)
    each, _ = evictions(tmp_path, config(), until_s)
    assert [name for _, name in each] == ["r", "b"]
    for found, interval in ((seconds, 1), (minutes, 60)):
        assert [name for _, name in found] == ["r", "b"]
        late = [here - at for (here, _), (at, _) in zip(found, each, strict=True)]
        assert all(-1 <= one <= interval for one in late)
    assert max(n_minutes, n_seconds) < 60


def test_a_replay_without_an_end_is_over_though_turns_are_not(tmp_path: Path) -> None:
    found, n_sessions = evictions(tmp_path, config(), until_s=None)
    assert len(found) > 30
    assert 23 * HOUR < found[-1][0] < 26 * HOUR
    assert n_sessions < 1000


def test_jobs_that_never_fit_need_no_sessions(tmp_path: Path) -> None:
    objects = [*cluster()[:-1], waiting("b", "blue", 9, "00:02:00")]
    found, n_sessions = evictions(tmp_path, config(), objects=objects)
    assert found == []
    assert n_sessions < 100


@given(
    half_life=st.sampled_from([None, 600.0, 7200.0]),
    window=st.sampled_from([3600.0, 86_400.0]),
    is_fixed=st.booleans(),
    held=st.lists(
        st.tuples(st.floats(1, 5000), st.floats(0, 8), st.sampled_from([8.0, 16.0])),
        min_size=1,
        max_size=8,
    ),
    after=st.floats(1, 50_000),
)
def test_the_outlook_is_the_record_of_later(
    half_life: float | None,
    window: float,
    is_fixed: bool,
    held: list[tuple[float, float, float]],
    after: float,
) -> None:
    record, now = KaiUsage(UsageRules(half_life, window, is_fixed)), 1_000_000.0
    record.advance(now)
    for took, cards, total in held:
        record.hold({"q": [0.0, 0.0, cards], "r": [0.0, 0.0, total - cards]}, [0.0, 0.0, total])
        now += took
        record.advance(now)
    later = record.outlook().shares(now + after)
    record.advance(now + after)
    for name, shares in record.shares().items():
        assert later[name] == pytest.approx(shares, abs=5e-3)


@pytest.mark.parametrize("half_life", [None, 600.0])
def test_usage_does_not_depend_on_how_often_it_is_counted(half_life: float | None) -> None:
    found = []
    for step in (10.0, 7200.0):
        record, now = KaiUsage(UsageRules(half_life, 2 * HOUR)), 0.0
        record.advance(now)
        for cards in (8.0, 0.0, 2.0):
            record.hold({"q": [0.0, 0.0, cards]}, [0.0, 0.0, 8.0])
            for _ in range(math.ceil(7200 / step)):
                now += step
                record.advance(now)
        record.hold({"q": [0.0, 0.0, 8.0]}, [0.0, 0.0, 8.0])
        record.advance(now + 600)
        found.append(record.shares()["q"][2])
    assert found[0] == pytest.approx(found[1], abs=2e-3)


def test_a_moment_is_the_first_with_other_shares(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exact, n_exact = evictions(tmp_path, config())
    monkeypatch.setattr(next_session, "N_EACH", 10_000)
    assert evictions(tmp_path, config()) == (exact, n_exact)


def test_queues_that_are_gone_are_forgotten() -> None:
    record = KaiUsage(UsageRules(window=HOUR))
    for number in range(1000):
        record.advance(number * 60.0)
        record.hold({f"q{number}": [0.0, 0.0, 1.0], "kept": [0.0, 0.0, 1.0]}, [0.0, 0.0, 2.0])
    shares = record.shares()
    assert len(shares) < 150
    assert shares["kept"][2] == pytest.approx(0.5)
    assert shares["q998"][2] == pytest.approx(0.5 / 60, rel=0.05)
