"""kubectl against the embedded cluster: the recorded commands come to what they came to."""

import asyncio
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.contract.kubectl.different import BY_RECORDING, DIFFERENT
from tests.contract.kubectl.normal import normal
from tests.contract.kubectl.replay import Ran, Replay, recording

AT_LEAST = 120
RECORDINGS = ("kubectl-1.32", "kubectl-1.36")
KUBECTL = os.environ.get("STOWPLAN_KUBECTL") or shutil.which("kubectl")

needs_kubectl = pytest.mark.skipif(
    KUBECTL is None, reason="no kubectl on PATH, and STOWPLAN_KUBECTL names none"
)


def recording_for(kubectl: str) -> str:
    """The recording whose client is nearest to the one at hand."""
    ran = subprocess.run(
        [kubectl, "version", "--client"], capture_output=True, text=True, check=True
    )
    found = re.search(r"v1\.(\d+)", ran.stdout)
    minor = int(found[1]) if found else 36
    return min(RECORDINGS, key=lambda name: abs(minor - int(name.rsplit(".", 1)[1])))


def transcript(ran: Ran) -> str:
    parts = ("exit code", "stdout", "stderr")
    lines = [f"{ran.number}: kubectl {ran.command}"]
    for part, got, wanted in zip(parts, ran.got, ran.wanted, strict=True):
        if got != wanted:
            lines += [f"  {part} got:    {got!r}", f"  {part} wanted: {wanted!r}"]
    return "\n".join(lines)


@needs_kubectl
@pytest.mark.slow
def test_commands_come_to_what_was_recorded(tmp_path: Path) -> None:
    assert KUBECTL is not None
    name = recording_for(KUBECTL)
    all_ran = asyncio.run(Replay(name, KUBECTL, tmp_path).run())
    wrong = [ran for ran in all_ran if not ran.same]
    known = DIFFERENT | BY_RECORDING[name]
    surprising = [ran for ran in wrong if ran.number not in known]
    assert not surprising, "\n".join(transcript(ran) for ran in surprising)
    assert len(all_ran) - len(wrong) >= AT_LEAST


@pytest.mark.parametrize("name", RECORDINGS)
def test_what_is_listed_is_recorded(name: str) -> None:
    numbers = range(1, len(recording(name)) + 1)
    known = DIFFERENT | BY_RECORDING[name]
    assert set(known) <= set(numbers)
    assert len(numbers) - len(known) >= AT_LEAST


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("p1   1/1   Running  0   8s", "p1 1/1 Running 0 3m15s", True),
        ("p1   1/1   Running  0   8s", "p1 1/1 Running 1 8s", False),
        ('  resourceVersion: "<rv1>"', '  resourceVersion: "417"', True),
        ("uid: <uid2>", "uid: 8a7c0a8e-3a93-4b07-9d2e-1f2f8e4c9a10", True),
        ("pod/web-bfd88d66b-<gen1>", "pod/web-5cf6c6ff6f-x2v4k", True),
        ("pod/web-bfd88d66b-<gen1>", "pod/bew-5cf6c6ff6f-x2v4k", False),
        ("pods n1", "pods n2", False),
    ],
)
def test_normal_form(one: str, other: str, same: bool) -> None:
    assert (normal(one) == normal(other)) is same
