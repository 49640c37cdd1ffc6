"""Every script produces the recorded output. `make golden` rewrites it: read the diff."""

import os
from pathlib import Path

import pytest

from stowplan.queue.pod_record import PodState
from tests.scenarios.script import DASHES, Player, replayed, scripts
from tests.scheduler.transition_trace import TransitionTrace

REWRITES = bool(os.environ.get("STOWPLAN_GOLDEN"))
LINES_MAX = 60


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    answered = replayed(text)
    if REWRITES:
        path.write_text(answered, encoding="utf-8")
        return
    assert answered == text


def test_scripts_fit_on_a_screen_and_have_a_title() -> None:
    assert scripts()
    for path in scripts():
        lines = path.read_text(encoding="utf-8").split("\n")
        assert len(lines) <= LINES_MAX, path.name
        assert lines[0].startswith("# "), path.name


def test_control_a_wrong_output_is_noticed() -> None:
    text = f"# A pod.\npod web\n{DASHES}\nbind web to n1\n"
    assert replayed(text) != text


def test_control_a_lost_pod_is_noticed() -> None:
    player = Player()
    player.play(["node n1"])
    player.play(["pod web"])
    # As if the scheduler had lost a binding.
    (uid,) = dict(player.scheduler.bindings)
    player.scheduler.cache.forget(uid)
    with pytest.raises(AssertionError, match="pod is not assumed"):
        player.scheduler.validate()


# Transitions: every script is observed; see `TransitionTrace`.


def test_every_transition_is_taken_by_some_script() -> None:
    trace = TransitionTrace()
    for path in scripts():
        replayed(path.read_text(encoding="utf-8"), Player(trace))
    print(trace.report())
    assert not trace.missing(), trace.report()


def test_control_a_missing_transition_is_noticed() -> None:
    trace = TransitionTrace()
    replayed("node n1\n\npod web\n", Player(trace))
    assert "binding, bind done" in trace.missing()
    assert "new, added" not in trace.missing()


def test_control_a_transition_that_the_table_lacks_is_noticed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wrong: a pod that is popped counts as being bound."""
    monkeypatch.setattr("stowplan.queue.scheduling_queue._IN_FLIGHT", PodState.BINDING)
    with pytest.raises(AssertionError, match="active, popped led to binding"):
        replayed("node n1\n\npod web\n")


def test_control_a_change_outside_of_transitions_is_noticed() -> None:
    """Wrong: somebody else sets the state."""
    player = Player()
    player.play(["node n1"])
    player.play(["pod web"])
    player.scheduler.pods.records["default/web"].state = PodState.ASSUMED
    with pytest.raises(AssertionError, match="changed outside of transitions"):
        player.play(["pod api"])
