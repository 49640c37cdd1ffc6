"""Shell completion, and the entry points that kubectl calls."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from _pytest.mark.structures import ParameterSet

from stowplan.cli import completion
from stowplan.cli.main import COMMANDS, kubectl_main
from stowplan.client.kubeconfig import ClientConfig
from stowplan.driver.client import one_shot_requests
from stowplan.driver.client.one_shot_requests import ClusterListing, ServerUnreachable
from stowplan.testing import pod
from tests.cli.run import run
from tests.cli.test_output import CLUSTER

ROOT = Path(__file__).parents[2]
KUBECTL = shutil.which("kubectl")


def install(folder: Path) -> dict[str, str]:
    """An environment in which the entry points of pyproject.toml are on PATH."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    for name, target in scripts.items():
        module, _, function = target.partition(":")
        path = folder / name
        path.write_text(
            f"#!{sys.executable}\nimport sys\nfrom {module} import {function}\n"
            f"sys.exit({function}())\n"
        )
        path.chmod(0o755)
    source = str(ROOT / "src")
    path = f"{folder}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": source, "HOME": str(folder)}


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    return install(tmp_path)


def slow(*values: object) -> ParameterSet:
    return pytest.param(*values, marks=pytest.mark.slow)


BASH = """\
source <(stowplan completion bash)
COMP_WORDS=({words})
COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
compopt() {{ printf 'compopt %s %s\n' "$@"; }}
_stowplan_completion stowplan
printf '%s\\n' "${{COMPREPLY[@]}}"
"""


def complete(words: str, env: dict[str, str], cwd: Path) -> set[str]:
    """What bash offers for the last word, by the completion function of the script."""
    ran = subprocess.run(
        ["bash", "--norc", "-c", BASH.format(words=words)],
        capture_output=True,
        text=True,
        check=True,
        env=env,
        cwd=cwd,
    )
    assert ran.stderr == ""
    return set(ran.stdout.split("\n")) - {""}


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("stowplan ex", {"experiment", "extender", "explain"}),
        slow("stowplan plugin ''", {"list", "describe", "check", "new"}),
        slow("stowplan simulate --node-c", {"--node-count"}),
        slow("stowplan simulate -o ''", {"table", "wide", "json", "yaml", "csv", "name"}),
        slow("stowplan explain --orphans p", {"pending"}),
        slow("stowplan completion ''", {"bash", "zsh", "fish"}),
        ("stowplan simulate -f c", {"compopt -o default"}),
        slow("stowplan config check s", {"compopt -o default"}),
        slow("stowplan simulate --out ''", {"compopt -o dirnames"}),
        ("stowplan explain -f cluster.yaml f", {"fits"}),
        slow("stowplan explain -f cluster.yaml pod/", {"pod/fits", "pod/large"}),
        slow("stowplan explain -f cluster.yaml podg", {"podgroup/gang"}),
        slow("stowplan explain -f cluster.yaml -n team ''", {"large", "pod/large"}),
    ],
)
def test_bash_completes(words: str, offered: set[str], env: dict[str, str], tmp_path: Path) -> None:
    assert complete(words, env, tmp_path) == offered


def test_bash_completes_every_command(env: dict[str, str], tmp_path: Path) -> None:
    assert complete("stowplan ''", env, tmp_path) == set(COMMANDS)


@pytest.mark.parametrize("shell", completion.SHELLS)
def test_every_shell_has_a_script(shell: str) -> None:
    ran = run("completion", shell)
    assert (ran.code, ran.err) == (0, "")
    assert f"_STOWPLAN_COMPLETE={shell}_complete" in ran.out


def test_malformed_files_complete_nothing(tmp_path: Path, env: dict[str, str]) -> None:
    (tmp_path / "cluster.yaml").write_text("kind: [\n")
    assert complete("stowplan explain -f cluster.yaml ''", env, tmp_path) == set()
    (tmp_path / "cluster.yaml").write_bytes(b"#" * (completion.FILE_BYTES_MAX + 1))
    assert complete("stowplan explain -f cluster.yaml ''", env, tmp_path) == set()


def test_pods_of_a_live_cluster_are_those_of_kubectl(tmp_path: Path, env: dict[str, str]) -> None:
    fake = tmp_path / "kubectl"
    fake.write_text('#!/bin/sh\necho "$@" > asked\necho pod/one\necho pod/two\n')
    fake.chmod(0o755)
    words = "stowplan explain --context prod -n team t"
    assert complete(words, env, tmp_path) == {"two"}
    asked = (tmp_path / "asked").read_text().split()
    assert asked[:3] == ["get", "pods", "-o"]
    assert {"--context=prod", "--namespace=team"} <= set(asked)
    (tmp_path / "stowplan.kubeconfig").touch()
    for words, is_local in (
        ("stowplan explain t", True),
        ("stowplan explain --context c t", False),
    ):
        assert complete(words, env, tmp_path) == {"two"}
        asked = (tmp_path / "asked").read_text().split()
        assert ("--kubeconfig=stowplan.kubeconfig" in asked) == is_local


# kubectl stowplan.


def test_entry_points_exist() -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert set(scripts) == {"stowplan", "kubectl-stowplan", "kubectl_complete-stowplan"}
    for target in scripts.values():
        module, _, function = target.partition(":")
        assert callable(getattr(import_module(module), function))


def test_usage_and_examples_say_kubectl_stowplan(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        kubectl_main(["explain", "--help"])
    assert ended.value.code == 0
    text = capsys.readouterr().out
    assert text.startswith("Usage: kubectl stowplan explain ")
    assert "\n  kubectl stowplan explain pod/web -f cluster.yaml\n" in text
    with pytest.raises(SystemExit):
        kubectl_main(["explain", "-z", "web"])
    assert "See 'kubectl stowplan explain --help' for usage." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["plugin", ""], ["check", "describe", "list", "new", ":4"]),
        (["explain", "-f", "cluster.yaml", "fi"], ["fits", ":4"]),
        (["simulate", "-f", "c"], [":0"]),
        (["simulate", "--out", ""], [":16"]),
    ],
)
def test_kubectl_completes(
    words: list[str],
    printed: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["kubectl_complete-stowplan", *words])
    completion.kubectl_complete()
    assert [line.split("\t")[0] for line in capsys.readouterr().out.splitlines()] == printed


@pytest.mark.skipif(KUBECTL is None, reason="no kubectl on PATH")
def test_kubectl_runs_the_plugin(tmp_path: Path, env: dict[str, str]) -> None:
    command = ["kubectl", "stowplan", "explain", "pod/fits", "-f", "cluster.yaml"]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env=env, cwd=tmp_path
    )
    assert ran.returncode == 0, ran.stderr
    assert "would be scheduled on n1" in ran.stdout
    command = ["kubectl", "__complete", "stowplan", "expl"]
    ran = subprocess.run(
        command, capture_output=True, text=True, check=False, env=env, cwd=tmp_path
    )
    assert "explain" in ran.stdout


@pytest.mark.parametrize("words", [["explain", "pod/web"], ["queues"], ["simulate"]])
def test_kubectl_reads_the_current_context(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = tmp_path / "config"
    path.write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u, namespace: team}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "users: [{name: u, user: {}}]\n"
    )

    def list_once(config: ClientConfig, deciders: object, **_: object) -> ClusterListing:
        raise ServerUnreachable(f"{config.server} {config.namespace}")

    monkeypatch.setattr(one_shot_requests, "list_once", list_once)
    monkeypatch.setenv("KUBECONFIG", str(path))
    with pytest.raises(SystemExit) as ended:
        kubectl_main(words)
    assert ended.value.code == 2
    assert capsys.readouterr().err == "error: http://127.0.0.1:9 team\n"


def test_the_namespace_of_the_context_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    (tmp_path / "config").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u, namespace: team}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:9'}}]\n"
        "users: [{name: u, user: {}}]\n"
    )
    listing = ClusterListing([], [pod("web", namespace="team")], [])
    monkeypatch.setattr(one_shot_requests, "list_once", lambda config, deciders, **_: listing)
    for words, message in (
        (["explain", "pod/wob"], 'pods "wob" not found in namespace "team" (did you mean "web"?)'),
        (
            ["explain", "web", "-n", "other"],
            'pods "web" not found in namespace "other" (did you mean "team/web"?)',
        ),
    ):
        with pytest.raises(SystemExit):
            kubectl_main(words)
        assert capsys.readouterr().err == f"error: {message}\n"
