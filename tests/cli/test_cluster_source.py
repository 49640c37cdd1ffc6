"""Which cluster a command reads where its arguments name none."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.cli.main import kubectl_main, main
from stowplan.cli.runs import status
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

    def unreachable(config: ClientConfig, *_: object) -> ClusterListing:
        raise ServerUnreachable(config.server)

    def no_scheduler(*_: object) -> object:
        raise ServerUnreachable("no scheduler")

    monkeypatch.setattr(one_shot_requests, "list_once", unreachable)
    monkeypatch.setattr(status, "published_status_address", unreachable)
    monkeypatch.setattr(status, "fetch_status", no_scheduler)
    with pytest.raises(SystemExit) as ended:
        (kubectl_main if kubectl else main)(words.split())
    assert ended.value.code == 2
    shown = capsys.readouterr().err
    assert shown.startswith(f"error: {server}:" if "." in server else f"error: http://{server}\n")


def test_without_a_cluster_in_this_directory_none_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for words in (["explain", "pod/web"], ["queues"]):
        with pytest.raises(SystemExit):
            main(words)
        assert capsys.readouterr().err.startswith("error: no cluster given: ")
