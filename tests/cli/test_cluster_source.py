"""Which cluster a command reads where its arguments name none."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.cli.main import kubectl_main, main
from stowplan.cli.runs import status
from stowplan.cli.tables.console import stdout_console
from stowplan.client.kubeconfig import ClientConfig
from stowplan.driver.client import one_shot_requests
from stowplan.driver.client.one_shot_requests import ClusterListing, ServerUnreachable


@pytest.mark.parametrize(
    ("words", "kubectl", "server"),
    [
        ("status", False, "up"),
        ("explain pod/web", False, "up"),
        ("explain podgroup/train", False, "up"),
        ("queues", False, "up"),
        ("explain pod/web --context c", False, "other"),
        ("explain pod/web --kubeconfig config", False, "other"),
        ("explain pod/web", True, "other"),
        ("queues", True, "other"),
        ("explain pod/web -f nowhere.yaml", False, "nowhere.yaml"),
        ("queues -f nowhere.yaml", False, "nowhere.yaml"),
    ],
)
def test_the_cluster_of_this_directory_is_found(
    words: str,
    kubectl: bool,
    server: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The one of `stowplan up`, unless the command line, or kubectl, names another."""
    for file, host in (("stowplan.kubeconfig", "up"), ("config", "other")):
        (tmp_path / file).write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
            "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
            f"clusters: [{{name: c, cluster: {{server: 'http://{host}'}}}}]\n"
            "users: [{name: u, user: {}}]\n"
        )
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
    monkeypatch.chdir(tmp_path)

    def unreachable(config: ClientConfig, *_: object, **_more: object) -> ClusterListing:
        raise ServerUnreachable(config.server)

    def no_scheduler(*_: object) -> object:
        raise ServerUnreachable("no scheduler")

    monkeypatch.setattr(one_shot_requests, "list_once", unreachable)
    monkeypatch.setattr(status, "published_status_address", unreachable)
    monkeypatch.setattr(status, "fetch_status", no_scheduler)
    with pytest.raises(SystemExit) as ended:
        (kubectl_main if kubectl else main)(words.split())
    assert ended.value.code == 2
    printed = capsys.readouterr().err
    assert printed.startswith(f"error: {server}:" if "." in server else f"error: http://{server}\n")


def test_without_a_cluster_in_this_directory_none_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["explain", "pod/web"], ["queues"]):
        with pytest.raises(SystemExit):
            main(words)
        assert capsys.readouterr().err.startswith("error: no cluster given: ")


def test_status_counts_one_and_many(capsys: pytest.CaptureFixture[str]) -> None:
    tree = {
        "schedulerNames": ["stowplan"],
        "server": "https://up",
        "leader": {"leads": True, "term": 1},
        "counts": {"bound": 1, "refused": 1},
        "rates": {"boundPerSecond": 1, "refusedPerSecond": 0},
        "nodes": 1,
        "writes": {"waiting": 1, "underWay": 0},
        "sessions": {"held": 1, "waiting": 1},
        "pending": {},
        "followed": [],
    }
    status._print(tree, stdout_console())
    many = {
        "counts": {"bound": 2, "refused": 0},
        "nodes": 3,
        "writes": {"waiting": 0, "underWay": 2},
    }
    status._print({**tree, **many, "sessions": {"held": 0, "waiting": 2}}, stdout_console())
    lines = [line for line in capsys.readouterr().out.splitlines() if ";" in line or "run" in line]
    assert lines == [
        "1 node; 1 pod bound (1/s), 1 attempt unschedulable (0/s); 1 write queued, 0 in flight",
        "1 session run, 1 pod pending",
        "3 nodes; 2 pods bound (1/s), 0 attempts unschedulable (0/s); 0 writes queued, 2 in flight",
        "0 sessions run, 2 pods pending",
    ]
