"""Protobuf as recorded: pairs with JSON, answers, watches and conversations."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from tests.contract.apiserver.file_replay import lines_of, replayed_lines
from tests.contract.apiserver.protobuf_forms import form_differences

DATA = Path(__file__).parent / "data"


@pytest.mark.parametrize("name", ["codec", "conversations", "server", "watch"])
def test_recorded_lines_are_exact(name: str) -> None:
    lines = lines_of(DATA / f"protobuf-{name}.jsonl.gz")
    assert lines
    assert [one for one in replayed_lines(lines) if not one.exact] == []


def test_a_difference_is_found() -> None:
    """A number in place of another one, in each direction."""
    line = next(one for one in lines_of(DATA / "protobuf-codec.jsonl.gz") if "/Pod" in one["kind"])
    assert list(form_differences(line)) == []
    other = {**line, "json": {**line["json"], "metadata": {"name": "x"}}}
    assert len(list(form_differences(other))) == 2
    cut = base64.b64encode(base64.b64decode(line["base64"])[:-1]).decode()
    assert "unexpected EOF" in " ".join(form_differences({**line, "base64": cut}))
