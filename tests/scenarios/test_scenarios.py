"""Every script produces the recorded output. `make golden` rewrites it: read the diff."""

import os
from pathlib import Path

import pytest

from tests.scenarios.script import DASHES, Player, replayed, scripts

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
