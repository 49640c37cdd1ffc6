"""Objects of KAI-Scheduler, Kueue and Volcano without a configuration that reads them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
import yaml

from stowplan.cli.runs.queue_models import unread_queues
from stowplan.client.kubeconfig import ClientConfig
from stowplan.driver import status_address
from stowplan.driver.client import one_shot_requests
from stowplan.driver.client.one_shot_requests import ClusterListing
from tests.batch.queue_models import test_kai_model as kai
from tests.batch.queue_models import test_volcano_model as volcano
from tests.cli.run import run
from tests.cli.test_beside_up import KAI, KUEUE, NODE

KAI_OPTIONS = "--compat kai, or --config FILE with `scheduler: kai`"
KUEUE_OPTIONS = "--compat kueue, or --config FILE with `scheduler: kueue`"
VOLCANO_OPTIONS = "--compat volcano-1.15, or --config FILE with `scheduler: volcano`"
PREFIX = "kube-batch's default configuration"


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    volcano_objects = [volcano.queue("vq", deserved={"cpu": "2"}), volcano.pod("vp")]
    texts = {"kai": KAI, "kueue": KUEUE, "volcano": yaml.safe_dump_all(volcano_objects)}
    for name, text in texts.items():
        (tmp_path / f"{name}.yaml").write_text(f"{NODE}\n---\n{text}")
    return {name: str(tmp_path / f"{name}.yaml") for name in texts}


@pytest.mark.parametrize("more", [(), ("--audit",)])
def test_queues_of_kai_are_an_error(files: dict[str, str], more: tuple[str, ...]) -> None:
    """There is nothing else to show."""
    ran = run("queues", "-f", files["kai"], *more)
    expected = f"error: {PREFIX} does not read KAI-Scheduler's Queues: use {KAI_OPTIONS}\n"
    assert (ran.code, ran.out, ran.err) == (2, "", expected)


def test_queues_of_others_are_a_note(files: dict[str, str]) -> None:
    ran = run("queues", "-f", files["kueue"])
    assert ran.code == 0
    assert f"Note: {PREFIX} does not read Kueue's ClusterQueues: use {KUEUE_OPTIONS}\n" in ran.err
    ran = run("queues", "-f", files["volcano"])
    assert ran.code == 0
    text = f"reads only weight and capability of Volcano's Queues: use {VOLCANO_OPTIONS}"
    assert f"Note: {PREFIX} {text}\n" in ran.err
    plain = yaml.safe_dump(volcano.queue("vq", capability={"cpu": "2"}))
    Path(files["volcano"]).write_text(f"{NODE}\n---\n{plain}")
    assert run("queues", "-f", files["volcano"]).err == ""
    # With its options, and with a configuration of one's own, there is nothing to say.
    assert "Note" not in run("queues", "-f", files["volcano"], "--compat", "volcano-1.15").err


@pytest.mark.parametrize(("name", "options"), [("kai", KAI_OPTIONS), ("volcano", VOLCANO_OPTIONS)])
def test_pods_of_a_scheduler_with_queues(files: dict[str, str], name: str, options: str) -> None:
    scheduler = {"kai": "kai-scheduler"}.get(name, name)
    reason = f"no profile has schedulerName '{scheduler}' (add {options})"
    for words in (("simulate",), ("explain", "--all-pending"), ("eta", "--all")):
        assert reason in run(*words, "-f", files[name]).out, words
    pod = {"kai": "x-0"}.get(name, "vp")
    assert f"(add {options})" in run("explain", f"pod/{pod}", "-f", files[name]).err
    # The option that is named decides them.
    compat = options.split(",")[0].removeprefix("--compat ")
    ran = run("simulate", "-f", files[name], "--compat", compat)
    assert "no profile" not in ran.out
    (Path(files[name]).parent / "own.yaml").write_text(f"scheduler: {name}\n")
    own = str(Path(files[name]).parent / "own.yaml")
    ran = run("simulate", "-f", files[name], "--config", own)
    assert "no profile" not in ran.out


def test_podgroups_of_kai(files: dict[str, str]) -> None:
    ran = run("explain", "podgroup/x", "-f", files["kai"])
    assert f"Note: no sessions are configured (add {KAI_OPTIONS}); kube-batch's" in ran.out


def test_jobs_of_kueue(files: dict[str, str]) -> None:
    ran = run("simulate", "-f", files["kueue"])
    assert f"ClusterQueues count with {KUEUE_OPTIONS}" in ran.out
    config = Path(files["kueue"]).parent / "kueue.yaml.conf"
    config.write_text("scheduler: kueue\n")
    for options in (("--compat", "kueue"), ("--config", str(config))):
        assert "ExceedsMaxQuota" in run("simulate", "-f", files["kueue"], *options).out


@pytest.mark.parametrize("name", ["kueue"])
def test_strict_counts_what_is_read(files: dict[str, str], name: str) -> None:
    """Kinds of Kueue are ignored only where it does not decide."""
    ran = run("simulate", "-f", files[name], "--strict", "--compat", "kueue")
    assert (ran.code, ran.err) == (1, "")
    without = run("simulate", "-f", files[name], "--strict")
    assert without.code == 2
    assert without.err == "Warning: ignored, not supported: 1 ResourceFlavor.kueue.x-k8s.io\n"


@pytest.mark.parametrize(
    ("served", "expected"),
    [
        ("/apis/scheduling.run.ai/v2/queues", "KAI-Scheduler's Queues"),
        ("/apis/kueue.x-k8s.io/v1beta1/clusterqueues", "Kueue's ClusterQueues"),
        ("", ""),
    ],
)
@pytest.mark.parametrize("words", ["queues", "queues --audit", "explain podgroup/x"])
def test_queues_of_a_live_cluster(
    words: str, served: str, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A cluster that was not started by `stowplan up`, and says nothing of its configuration."""
    (tmp_path / "config").write_text(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
        "clusters: [{name: c, cluster: {server: 'http://far'}}]\nusers: [{name: u, user: {}}]\n"
    )

    def lists(_: ClientConfig, paths: Iterable[str]) -> set[str]:
        return {served} & set(paths)

    monkeypatch.setattr(one_shot_requests, "list_once", lambda *_, **__: ClusterListing())
    monkeypatch.setattr(status_address, "published_configuration", lambda _: None)
    monkeypatch.setattr(unread_queues, "lists_with_objects", lists)
    ran = run(*words.split(), "--kubeconfig", str(tmp_path / "config"))
    if expected:
        assert ran.code == 2
        assert ran.err.startswith(f"error: {PREFIX} does not read {expected}: use --compat ")
        assert len(ran.err.splitlines()) == 1
    else:
        assert PREFIX not in ran.err


def test_a_cluster_of_kai_with_other_queues_shows_those(tmp_path: Path) -> None:
    file = tmp_path / "both.yaml"
    file.write_text(yaml.safe_dump_all([kai.node("n", 4), kai.queue("k", 4), volcano.queue("v")]))
    ran = run("queues", "-f", str(file), "-o", "name")
    assert (ran.code, ran.out) == (0, "queue/v\n")
    assert "does not read KAI-Scheduler's Queues" in ran.err
