"""A recording that is decided again gives the same effects, byte for byte."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.recording.call_codec import Call, RecordedCall, decode_calls, encode_calls
from stowplan.scheduler import Scheduler
from tests.fault_runs.configs import BASE_CONFIG, EXTENDERS_CONFIG, TEST_PLUGINS_CONFIG
from tests.fault_runs.fault_run import FaultRun
from tests.fault_runs.gang_config import GANG_CONFIG
from tests.scenarios import script
from tests.scenarios.script import replayed, scripts

Made = tuple[Callable[[], Scheduler], list[Any]]


def followed(make: Callable[..., Scheduler], found: list[Made]) -> Callable[..., Scheduler]:
    """A maker of schedulers whose calls are collected in `found`."""

    def made(*args: Any, **more: Any) -> Scheduler:
        scheduler = make(*args, **more)
        calls: list[Any] = []
        found.append((lambda: make(*args, **more), calls))
        scheduler.on_handled = lambda events, now, heads, effects: calls.append(
            Call(now, heads, events, list(effects), scheduler.bind_runs)
        )
        return scheduler

    return made


def stored(calls: list[Any]) -> list[RecordedCall]:
    return decode_calls(encode_calls(calls))


def n_equal(make: Callable[[], Scheduler], recorded: list[RecordedCall]) -> int:
    """Calls until the first that is decided otherwise."""
    scheduler = make()
    for number, call in enumerate(recorded):
        effects = scheduler.handle(call.events(), call.now, call.heads_max)
        if not call.has_effects(effects):
            return number
    return len(recorded)


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.stem)
def test_scenario(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[Made] = []
    monkeypatch.setattr(script, "made", followed(script.made, found))
    replayed(path.read_text(encoding="utf-8"))
    assert any(calls for _, calls in found)
    for make, calls in found:
        recorded = stored(calls)
        assert n_equal(make, recorded) == len(calls)


CONFIGS = {
    "plain": BASE_CONFIG,
    "plugins": TEST_PLUGINS_CONFIG,
    "extenders": EXTENDERS_CONFIG,
    "sessions": GANG_CONFIG,
}


@pytest.mark.parametrize("name", CONFIGS)
@pytest.mark.parametrize("seed", [3, 4])
def test_seeded_fault_run(name: str, seed: int) -> None:
    config = CONFIGS[name]
    found: list[Made] = []
    following = replace(config, scheduler=followed(config.scheduler, found))
    fault_run = FaultRun(seed, following)
    fault_run.run()
    for make, calls in found:
        assert n_equal(make, stored(calls)) == len(calls)


def test_control_a_wrong_decision_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a recording that leaves out the outcomes of bindings."""
    found: list[Made] = []
    monkeypatch.setattr(script, "made", followed(script.made, found))
    replayed("node n1\n\npod web\n\nbind web done\n\npod api\n")
    ((make, calls),) = found
    recorded = stored(calls)
    assert n_equal(make, recorded) == len(calls)
    without = [replace(call, recorded=[]) for call in recorded[2:3]]
    assert without[0].events() != recorded[2].events()
    assert n_equal(make, [*recorded[:2], *without, *recorded[3:]]) < len(calls)
