"""`--web`: which values are refused, the line with the address, and how the commands end."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import urlopen

import pytest

from tests.cli.run import run

ADDRESS = re.compile(r"Web page: (http://127\.0\.0\.1:[1-9][0-9]*)\n")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("up", "--web", "cluster.yaml"), "'cluster.yaml': expected HOST:PORT"),
        (("up", "--web", "--no-scheduler"), "--no-scheduler cannot be used with --web"),
        (("simulate", "--web=80"), "'80': expected HOST:PORT"),
        (("simulate", "--web=0.0.0.0:80"), "a simulation has no API server"),
        (("simulate", "--web", "--seeds", "2"), "--web cannot be used with several seeds"),
    ],
)
def test_invalid_values(arguments: tuple[str, ...], text: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, ""), ran
    assert text in ran.err.splitlines()[0]


@pytest.mark.parametrize(
    ("arguments", "source"),
    [
        (("up", "--port", "0", "--node-count", "2"), "live"),
        (("simulate", "--node-count", "2", "--pod-count", "3"), "simulation"),
    ],
)
def test_the_address_is_printed_and_answers(
    arguments: tuple[str, ...], source: str, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "stowplan", *arguments, "--web"]
    process = subprocess.Popen(
        command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    try:
        lines = iter(process.stdout.readline, "")
        url = next(found[1] for line in lines if (found := ADDRESS.fullmatch(line)))
        for path in ("cluster", "pending", "decisions"):
            tree = answered(f"{url}/api/page/v1/{path}")
            if path == "cluster":
                assert tree["source"] == source
                assert len(tree["nodes"]) == 2
    finally:
        process.send_signal(signal.SIGINT)
        code = process.wait(240)
        process.stdout.close()
    assert code == 0


def answered(url: str) -> dict[str, object]:
    """The JSON of a URL, once the scheduler has started."""
    for _ in range(600):
        try:
            with urlopen(url) as response:
                tree: dict[str, object] = json.load(response)
        except HTTPError as problem:
            if problem.code != 503:
                raise
        else:
            nodes = tree.get("nodes")
            if nodes is None or len(nodes) == 2:  # type: ignore[arg-type]
                return tree
        time.sleep(0.05)
    raise AssertionError(url)
