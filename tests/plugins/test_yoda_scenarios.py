"""Yoda in the machine: every script is answered as it says. `make golden` writes them anew."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.plugins.gpus import GpuPlayer
from tests.scenarios.script import DASHES, replayed

SCRIPTS = sorted((Path(__file__).parent / "yoda").glob("*.txt"))
REWRITES = bool(os.environ.get("STOWPLAN_GOLDEN"))


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_script(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    answered = replayed(text, GpuPlayer(compat=path.stem.startswith("compat")))
    if REWRITES:
        path.write_text(answered, encoding="utf-8")
        return
    assert answered == text


def test_every_scenario_is_there() -> None:
    assert {path.stem for path in SCRIPTS} >= {
        "two_gpus_on_one_node",
        "memory_short_on_one_card",
        "an_unhealthy_card",
        "metrics_change_between_two_pods",
        "a_report_is_missing",
        "a_report_is_stale",
        "two_pods_at_once_for_the_last_card",
    }


def test_control_the_original_gives_one_card_to_two() -> None:
    path = next(p for p in SCRIPTS if p.stem == "two_pods_at_once_for_the_last_card")
    text = path.read_text(encoding="utf-8")
    head, _, _ = text.partition("# The binding is refused")
    assert replayed(head, GpuPlayer()) == head.strip() + "\n"
    assert replayed(head, GpuPlayer(compat=True)) != head.strip() + "\n"
    assert DASHES in head
