"""Bad input of the live commands: one line and exit code 2."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.run import run

GOOD = {
    "current-context": "c",
    "contexts": [{"name": "c", "context": {"cluster": "c"}}],
    "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["run", "--kubeconfig", "missing"], "missing: no such file"),
        (["run", "--kubeconfig", "GOOD", "--context", "d"], "contexts: c"),
        (
            ["run", "--kubeconfig", "GOOD", "--config", "missing.yaml"],
            "missing.yaml: no such",
        ),
        (["run", "--kubeconfig", "GOOD", "--config", "BAD"], "profils"),
        (["run", "--kubeconfig", "GOOD", "--listen", "here"], "expected HOST:PORT"),
        (["run", "--kubeconfig", "GOOD", "--log-level", "loud"], "supported values: debug"),
        (["run", "--kubeconfig", "GOOD", "--tls-cert-file", "x"], "must be set together"),
        (
            ["extender", "--listen", "1", "--kubeconfig", "missing"],
            "missing: no such file",
        ),
        (["extender", "--alone", "--listen", "0"], "HOST:PORT"),
        (
            ["extender", "--alone", "--listen", "1", "--profile", "x"],
            '"--profile" flag: must be one of: stowplan',
        ),
        (["status", "--address", "127.0.0.1:1"], "is `stowplan run` running there?"),
        (
            ["explain", "x", "--cluster", "a", "--kubeconfig", "GOOD"],
            "cannot be used with files",
        ),
        (["explain", "x", "--kubeconfig", "GOOD"], "127.0.0.1:1"),
    ],
)
def test_bad_input_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good").write_text(json.dumps(GOOD))
    bad = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    (tmp_path / "bad").write_text(json.dumps(bad | {"profils": []}))
    names = {"GOOD": str(tmp_path / "good"), "BAD": str(tmp_path / "bad")}
    ran = run(*(names.get(word, word) for word in arguments))
    assert ran.code == 2
    assert text in ran.err
    assert "Traceback" not in ran.err
    assert ran.out == ""
