"""kube-batch's end-to-end scenarios, through the scheduler. `make golden` rewrites their output."""

import os
from pathlib import Path

import pytest

from tests.scenarios.cluster_script import replayed, scripts

REWRITES = bool(os.environ.get("STOWPLAN_GOLDEN"))


@pytest.mark.parametrize("path", scripts(), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    answered = replayed(text)
    if REWRITES:
        path.write_text(answered, encoding="utf-8")
    else:
        assert answered == text
    # Requirements of the original's test, whatever the rest of the output is.
    assert "\nNO: " not in answered
    assert "\nexpect " in answered
