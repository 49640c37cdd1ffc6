"""`stowplan up`: what it prints, writes and rejects, and how it ends."""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.run import run
from tests.contract.up_process import Caller, Up, up

KUBECTL = os.environ.get("STOWPLAN_KUBECTL") or shutil.which("kubectl")


def ask(cluster: Up, method: str, path: str, token: str = "") -> tuple[int, dict[str, object]]:
    async def scene() -> tuple[int, dict[str, object]]:
        caller = await Caller.to(cluster.port, token or cluster.token)
        answer = await caller.ask(method, path)
        caller.close()
        return answer

    return asyncio.run(scene())


def refused(*arguments: str) -> str:
    """What it says instead of starting; in this process, for to start one takes a second."""
    ran = run("up", *arguments)
    assert ran.code in (1, 2), ran
    assert "Traceback" not in ran.err
    return ran.err


def refused_by_a_process(*arguments: str) -> str:
    command = [sys.executable, "-m", "stowplan", "up", *arguments]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    assert ran.returncode in (1, 2), ran
    assert "Traceback" not in ran.stderr
    return ran.stderr


def test_starts_answers_and_stops(tmp_path: Path) -> None:
    with up(tmp_path, "--node-count", "2") as cluster:
        assert cluster.server == f"https://127.0.0.1:{cluster.port}"
        assert cluster.kubeconfig.stat().st_mode & 0o777 == 0o600
        status, body = ask(cluster, "GET", "/api/v1/nodes")
        assert status == 200
        assert [item["metadata"]["name"] for item in body["items"]] == ["node-1", "node-2"]  # type: ignore[attr-defined]
        scheduler = json.loads((tmp_path / "scheduler.kubeconfig").read_text())
        token = scheduler["users"][0]["user"]["token"]
        assert ask(cluster, "GET", "/api/v1/pods", token)[0] == 200
        assert ask(cluster, "DELETE", "/api/v1/nodes/node-1", token)[0] == 403
        assert ask(cluster, "GET", "/api/v1/pods", "wrong")[0] == 401
        assert cluster.stop() == 0
    # They led to a cluster that is gone.
    assert list(tmp_path.iterdir()) == []


def test_files_of_other_programs_are_kept(tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("precious")
    assert "exists and was not written by Stowplan" in refused_by_a_process(
        "--kubeconfig", str(own), "--port", "0"
    )
    assert own.read_text() == "precious"
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


TAKEN = """
import sys
from pathlib import Path
from click.testing import CliRunner
from stowplan.cli.commands.up import command
from stowplan.driver.storage.kubeconfig_files import as_text, kubeconfig_tree, write_locked_secret
write_locked_secret(Path("stowplan.kubeconfig"), as_text(kubeconfig_tree("s", "", "u", "t")))
ran = CliRunner().invoke(command, [])
loaded = [name for name in sys.modules if name.startswith("stowplan.") and name.count(".") == 1]
print(ran.exit_code, ran.output, loaded)
"""


def test_a_folder_that_is_taken_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    run = [sys.executable, "-c", TAKEN]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.startswith("1 Error: stowplan.kubeconfig is in use by another"), done
    assert "stowplan.cli" in done.stdout
    assert "stowplan.apiserver" not in done.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["stowplan.kubeconfig"]


def test_invalid_objects_are_reported(tmp_path: Path) -> None:
    manifest = tmp_path / "odd.yaml"
    manifest.write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {debug: true}\n"
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {b: c}\n"
    )
    with up(tmp_path, "--cluster", str(manifest)) as cluster:
        assert ask(cluster, "GET", "/api/v1/namespaces/default/configmaps/b")[0] == 200
        assert ask(cluster, "GET", "/api/v1/namespaces/default/configmaps/a")[0] == 404


def test_data_and_tokens_are_kept(tmp_path: Path) -> None:
    manifest = tmp_path / "web.yaml"
    manifest.write_text(
        "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, namespace: made}\ndata: {b: c}\n"
        "---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: b}\ndata: {b: c}\n"
    )
    data = str(tmp_path / "data")
    path = "/api/v1/namespaces/made/configmaps/a"
    with up(tmp_path, "--data", data, "--cluster", str(manifest)) as cluster:
        token = cluster.token
        status, first = ask(cluster, "GET", path)
        assert status == 200
        assert "in use by another process" in refused(
            "--no-scheduler", "--port", "0", "--data", data
        )
        assert cluster.stop() == 0
    with up(tmp_path, "--data", data, "--cluster", str(manifest)) as cluster:
        assert cluster.token == token
        assert ask(cluster, "GET", path) == (200, first)
        # Ctrl-C is the same as being told to stop.
        cluster.process.send_signal(signal.SIGINT)
        assert cluster.process.wait(timeout=240) == 0


def test_errors_are_one_line(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        text = refused("--no-scheduler", "--port", port, "--kubeconfig", str(tmp_path / "k"))
        assert f"port {port} of 127.0.0.1: Address already in use" in text
    (tmp_path / "tokens.csv").write_text("only-a-token\n")
    text = refused("--no-scheduler", "--port", "0", "--token-file", str(tmp_path / "tokens.csv"))
    assert "line 1: too few columns (1): expected token,user,uid" in text
    assert "only-a-token" not in text
    (tmp_path / "tokens.csv").write_text("secret,,uid\n")
    text = refused("--no-scheduler", "--port", "0", "--token-file", str(tmp_path / "tokens.csv"))
    assert "line 1: empty user: expected token,user,uid" in text
    assert "secret" not in text
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "cluster.sqlite").write_bytes(b"nonsense" * 1000)
    text = refused("--no-scheduler", "--port", "0", "--data", str(tmp_path / "data"))
    assert "damaged" in text
    assert "The file was not changed: restore a copy" in text
    text = refused("--no-scheduler", "--port", "0", "--cluster", str(tmp_path / "nosuch.yaml"))
    assert "nosuch.yaml" in text


def test_objects_that_cannot_be_created_are_reported(tmp_path: Path) -> None:
    manifest = tmp_path / "bad.yaml"
    manifest.write_text(
        "apiVersion: v1\nkind: Node\nmetadata: {name: Bad_}\n"
        "---\napiVersion: nosuch/v1\nkind: Thing\nmetadata: {name: x}\n"
        "---\napiVersion: v1\nkind: Node\nmetadata: {name: good}\n"
    )
    with up(tmp_path, "--cluster", str(manifest)) as cluster:
        status, body = ask(cluster, "GET", "/api/v1/nodes")
        assert [item["metadata"]["name"] for item in body["items"]] == ["good"]  # type: ignore[attr-defined]
        assert status == 200


def test_more_clients(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens.csv"
    tokens.write_text('t-ann,ann,1,"devs,system:masters"\nt-bob,bob,2\n')
    with up(tmp_path, "--token-file", str(tokens), "--no-anonymous") as cluster:
        assert ask(cluster, "GET", "/api/v1/pods", "t-ann")[0] == 200
        assert ask(cluster, "GET", "/api/v1/pods", "t-bob")[0] == 403
        assert ask(cluster, "GET", "/version", " ")[0] == 401


@pytest.mark.skipif(KUBECTL is None, reason="no kubectl on PATH, and STOWPLAN_KUBECTL names none")
def test_kubectl_runs_a_deployment(tmp_path: Path) -> None:
    """With a stand-in for the scheduler: nodeName is set by hand."""
    assert KUBECTL is not None
    with up(tmp_path, "--node-count", "2") as cluster:

        def kubectl(*arguments: str, text: str = "") -> str:
            command = [KUBECTL, "--kubeconfig", str(cluster.kubeconfig), *arguments]
            ran = subprocess.run(
                command,
                input=text,
                capture_output=True,
                text=True,
                check=False,
                timeout=240,
                env={**os.environ, "HOME": str(tmp_path)},
            )
            assert ran.returncode == 0, (arguments, ran.stdout, ran.stderr)
            return ran.stdout

        assert "node-1" in kubectl("get", "nodes")
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "annotations": {"stowplan.dev/start-seconds": "0.1"}},
            "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
        }
        assert "pod/web created" in kubectl("apply", "-f", "-", text=json.dumps(pod))
        kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=240s")
        assert "Running" in kubectl("get", "pods")
        assert "web" in kubectl("describe", "node", "node-1")
        assert "deleted" in kubectl("delete", "pod", "web")
        assert kubectl("auth", "can-i", "create", "pods").strip() == "yes"
        assert "admin" in kubectl("auth", "whoami")
        assert cluster.stop() == 0


@pytest.mark.skipif(KUBECTL is None, reason="no kubectl on PATH, and STOWPLAN_KUBECTL names none")
def test_kubectl_exec_on_simulated_pods_is_rejected_in_one_line(tmp_path: Path) -> None:
    assert KUBECTL is not None
    with up(tmp_path, "--node-count", "1") as cluster:

        def kubectl(*arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
            return subprocess.run(
                [KUBECTL, "--kubeconfig", str(cluster.kubeconfig), *arguments],
                input=text,
                capture_output=True,
                text=True,
                check=False,
                timeout=240,
                env={**os.environ, "HOME": str(tmp_path)},
            )

        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "annotations": {"stowplan.dev/start-seconds": "0.1"}},
            "spec": {"nodeName": "node-1", "containers": [{"name": "c", "image": "i"}]},
        }
        assert kubectl("apply", "-f", "-", text=json.dumps(pod)).returncode == 0
        ran = kubectl("wait", "--for=condition=Ready", "pod/web", "--timeout=200s")
        assert ran.returncode == 0, ran.stderr
        ran = kubectl("logs", "web")
        assert ran.returncode == 0
        assert ran.stdout == "container c of a hollow node: it is simulated and writes no log\n"
        for arguments, what in (
            (("exec", "web", "--", "ls"), "exec"),
            (("attach", "web"), "attach"),
            (("port-forward", "pod/web", "8080:80"), "port-forward"),
            (("cp", "web:/etc/hosts", str(tmp_path / "hosts")), "exec"),
        ):
            ran = kubectl(*arguments)
            assert ran.returncode != 0
            (line,) = (line for line in ran.stderr.splitlines() if "rror" in line)
            assert f"{what} is not supported: containers of hollow nodes run no process" in line
