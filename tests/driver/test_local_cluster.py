"""A cluster in this process: errors at the start and during operation are one line."""

import asyncio
import json
import logging
import socket
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from stowplan.apis.machinery.http_messages import HttpRequest, HttpResponse
from stowplan.apiserver.http.deferred_work import DeferredWork, PendingRequest
from stowplan.cli.commands.up import command
from stowplan.driver.http import server_loop as server_loop_module
from stowplan.driver.http.server_loop import ServerLoop
from stowplan.driver.local_cluster import (
    LocalCluster,
    LocalClusterSettings,
    UpError,
    running_local_cluster,
)
from stowplan.driver.storage import sqlite_store
from stowplan.driver.storage.sqlite_store import COMMITTED, FILE
from tests.driver.logged import lines_of
from tests.driver.stub_cluster import JSON, Client, StubCluster, served


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are heard here, whoever has set them up before."""
    monkeypatch.setattr(logging.getLogger("stowplan"), "propagate", True)


DEVICE_CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
MAPS = "/api/v1/namespaces/default/configmaps"
KEY = "configmaps/default/a"


def asked(cluster: LocalCluster, name: str) -> HttpRequest:
    token = json.loads(cluster.kubeconfig.read_text())["users"][0]["user"]["token"]
    body = json.dumps({"metadata": {"name": name}}).encode()
    return HttpRequest("POST", MAPS, (), {"authorization": f"Bearer {token}"}, body)


def begun(
    settings: LocalClusterSettings, scene: Callable[[LocalCluster], Any] | None = None
) -> str:
    """Start, let `scene` happen, stop; what it could not begin or go on with."""

    async def life() -> str:
        async with running_local_cluster(settings) as cluster:
            if scene is not None:
                await scene(cluster)
            return cluster.failed.result() if cluster.failed.done() else ""

    return asyncio.run(asyncio.wait_for(life(), 300))


async def one_write(cluster: LocalCluster) -> None:
    answer = await cluster.server_loop.ask(asked(cluster, "a"))
    assert isinstance(answer, HttpResponse)
    assert answer.status == 201, answer


def refusal(settings: LocalClusterSettings) -> str:
    with pytest.raises(UpError) as refused:
        begun(settings)
    return str(refused.value)


def rewritten(directory: Path, value: bytes) -> bytes:
    """Exchange what is stored under KEY, checksum and all; what it is now."""
    file = sqlite3.connect(directory / FILE)
    (version,) = file.execute("SELECT version FROM objects WHERE key = ?", (KEY,)).fetchone()
    value = value.replace(b"VERSION", str(version).encode())
    checksum = sqlite_store._checksum(KEY, version, value)
    changed = "UPDATE objects SET value = ?, checksum = ? WHERE key = ?"
    file.execute(changed, (value, checksum, KEY))
    file.commit()
    file.close()
    return value


GOOD: dict[str, Any] = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {
        "name": "a",
        "namespace": "default",
        "uid": "u",
        "resourceVersion": "VERSION",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    },
}


def changed(**meta: Any) -> bytes:
    return msgspec.json.encode({**GOOD, "metadata": {**GOOD["metadata"], **meta}})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"{", "truncated"),
        (b"[]", "xpected `object`"),
        (b'{"kind":"ConfigMap","apiVersion":"v1"}', "metadata: Required value"),
        (changed(resourceVersion=None), "resourceVersion: Invalid value: None: must be"),
        (changed(resourceVersion="1x"), "resourceVersion: Invalid value: '1x': must be"),
        (
            changed(resourceVersion="99999999"),
            "resourceVersion: Invalid value: '99999999': must be",
        ),
        (changed(name="b"), "the object is 'default/b'"),
        (changed(uid=7), "uid: Invalid value: 7: must be a non-empty string"),
        (
            changed(deletionTimestamp="33715-01-01T00:00:00Z"),
            "deletionTimestamp: Invalid value: '33715-",
        ),
        (
            changed(creationTimestamp="499-12-31T23:00:00Z"),
            "creationTimestamp: Invalid value: '499-",
        ),
        (changed(labels={"a": 1}), "labels: must be a map of strings"),
        (json.dumps(GOOD).encode(), "the keys are not in the order of stored objects"),
    ],
)
def test_records_that_are_no_objects_are_set_aside(
    tmp_path: Path, value: bytes, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = LocalClusterSettings(data=tmp_path)
    assert begun(settings, one_write) == ""
    stored = rewritten(tmp_path, value)

    async def scene(cluster: LocalCluster) -> None:
        resource = cluster.cluster.server.registry.by_path("configmaps")
        assert resource is not None
        assert cluster.cluster.server.get(resource, "default", "a") is None

    assert begun(settings, scene) == ""
    (logged_fault,) = lines_of(caplog)
    assert logged_fault.startswith(f"Skipped invalid stored object key={KEY} err=")
    assert message in logged_fault
    file = sqlite3.connect(tmp_path / FILE)
    assert file.execute("SELECT value FROM objects WHERE key = ?", (KEY,)).fetchone() == (stored,)
    file.close()
    # What is written under its name takes its place.
    caplog.clear()
    assert begun(settings, one_write) == ""
    assert begun(settings) == ""
    assert len(caplog.messages) == 1


def test_a_stored_object_that_an_observer_cannot_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, faults: list[str]
) -> None:
    settings = LocalClusterSettings(data=tmp_path)
    assert begun(settings, one_write) == ""
    rewritten(tmp_path, changed(ownerReferences=[7]))
    assert begun(settings) == ""
    text = f"Internal error during=index {KEY} err=ValidationError"
    assert any(text in line for line in lines_of(caplog))
    assert len(faults) == 1
    faults.clear()


@pytest.mark.parametrize("name", [FILE, f"{FILE}-wal", COMMITTED])
def test_removed_files_end_the_cluster(tmp_path: Path, name: str) -> None:
    async def scene(cluster: LocalCluster) -> None:
        await one_write(cluster)
        (tmp_path / name).rename(tmp_path / "elsewhere")
        with pytest.raises(sqlite_store.StoreError):
            await cluster.server_loop.ask(asked(cluster, "b"))

    text = begun(LocalClusterSettings(data=tmp_path), scene)
    assert f"{tmp_path / name}: removed or replaced while the cluster ran" in text
    assert "\n" not in text


def test_a_port_in_use_is_reported_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = refusal(LocalClusterSettings(port=port, kubeconfig=tmp_path / "k"))
    assert text == (
        f"unable to listen on port {port} of 127.0.0.1: Address already in use; use another "
        "--port, or 0 for any free one"
    )


@pytest.mark.parametrize("host", ["nosuch.invalid", "192.0.2.1"])
def test_a_foreign_address_is_reported(tmp_path: Path, host: str) -> None:
    text = refusal(LocalClusterSettings(host=host, kubeconfig=tmp_path / "k"))
    assert text.startswith(f"unable to listen on {host} (--bind): ")


@pytest.mark.parametrize("option", ["--data", "--kubeconfig", "--token-file", "--cluster"])
def test_nothing_is_no_path(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(command, ["--no-scheduler", "--port", "0", option, ""])
    assert ran.exit_code == 2
    assert f'{option}" flag: must not be empty' in ran.output.replace(", --filename", "")
    assert list(tmp_path.iterdir()) == []


# A second one in the same place.


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_second_cluster_leaves_the_kubeconfig_of_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def scene(cluster: LocalCluster) -> None:
        text = cluster.kubeconfig.read_text()
        with pytest.raises(UpError) as refused:
            async with running_local_cluster(LocalClusterSettings()):
                raise AssertionError("two clusters have one kubeconfig")
        assert str(refused.value).startswith(
            "stowplan.kubeconfig is in use by another `stowplan up`; use another --kubeconfig"
        )
        async with running_local_cluster(LocalClusterSettings(kubeconfig=tmp_path / "other")):
            assert len(names(tmp_path)) == 4
        assert cluster.kubeconfig.read_text() == text

    assert begun(LocalClusterSettings(), scene) == ""
    assert names(tmp_path) == []


def test_devices_come_with_the_class_of_their_driver(tmp_path: Path) -> None:
    own = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "a.io"},
        "spec": {"extendedResourceName": "a.io/card"},
    }

    async def classes() -> dict[str, Any]:
        settings = LocalClusterSettings(
            kubeconfig=tmp_path / "k", nodes=1, devices="a.io=1xA; b.io=2xB"
        )
        async with running_local_cluster(settings, [("file", own)]) as cluster:
            request = msgspec.structs.replace(asked(cluster, ""), method="GET", path=DEVICE_CLASSES)
            answer = await cluster.server_loop.ask(request)
        assert isinstance(answer, HttpResponse)
        items = json.loads(answer.body)["items"]
        return {one["metadata"]["name"]: one["spec"] for one in items}

    expression = {"cel": {"expression": "device.driver == 'b.io'"}}
    assert asyncio.run(classes()) == {
        "a.io": {"extendedResourceName": "a.io/card"},
        "b.io": {"selectors": [expression]},
    }


def test_a_stale_kubeconfig_is_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "k"

    async def killed(cluster: LocalCluster) -> None:
        (tmp_path / "left").write_text(cluster.kubeconfig.read_text())

    assert begun(LocalClusterSettings(kubeconfig=path), killed) == ""
    (tmp_path / "left").rename(path)
    assert begun(LocalClusterSettings(kubeconfig=path)) == ""
    assert names(tmp_path) == []


def test_a_kubeconfig_of_another_is_not_deleted(tmp_path: Path) -> None:
    path = tmp_path / "k"

    async def replaced(cluster: LocalCluster) -> None:
        text = path.read_text()
        path.unlink()
        path.write_text(text)

    assert begun(LocalClusterSettings(kubeconfig=path), replaced) == ""
    assert names(tmp_path) == ["k"]


def test_faults_of_controllers_are_counted(tmp_path: Path) -> None:
    async def scene(cluster: LocalCluster) -> None:
        page = msgspec.structs.replace(asked(cluster, "a"), method="GET", path="/metrics", body=b"")
        answer = await cluster.server_loop.ask(page)
        assert isinstance(answer, HttpResponse)
        assert b'stowplan_controller_failing_objects{component="deployment"} 0\n' in answer.body

    assert begun(LocalClusterSettings(kubeconfig=tmp_path / "k"), scene) == ""


# The data directory.


@pytest.mark.parametrize("mode", [0o777, 0o707, 0o1777])
def test_a_data_directory_that_everybody_may_write(tmp_path: Path, mode: int) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    assert refusal(LocalClusterSettings(data=data)) == (
        f"{data}: permissions {mode:04o} are too open: every user of this machine may replace the "
        "data and the tokens in it; `chmod 700` it"
    )
    assert names(data) == []


@pytest.mark.parametrize(("mode", "warned"), [(0o775, True), (0o755, False), (0o700, False)])
def test_a_data_directory_that_others_may_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, mode: int, warned: bool
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    data.chmod(mode)
    assert begun(LocalClusterSettings(data=data)) == ""
    text = "Data directory is group-writable"
    assert any(line.startswith(text) for line in lines_of(caplog)) == warned


def test_a_disk_that_is_full_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Full(sqlite3.Connection):
        def execute(self, sql: str, *values: Any) -> Any:
            if "checkpoint(" in sql:
                raise sqlite3.OperationalError("database or disk is full")
            return super().execute(sql, *values)

    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *a, **more: connect(*a, factory=Full, **more))
    assert begun(LocalClusterSettings(data=tmp_path), one_write) == ""
    (logged_fault,) = lines_of(caplog)
    assert logged_fault.startswith(f"Data directory was not closed cleanly err={tmp_path / FILE}: ")
    assert "database or disk is full; no change is lost" in logged_fault
    monkeypatch.undo()

    async def scene(cluster: LocalCluster) -> None:
        answer = await cluster.server_loop.ask(asked(cluster, "a"))
        assert isinstance(answer, HttpResponse)
        assert answer.status == 409

    assert begun(LocalClusterSettings(data=tmp_path), scene) == ""


# Internal errors: a cluster that breaks.


class Breaking(StubCluster):
    """Fails in a given method, a given number of times."""

    def __init__(self, where: str, times: int) -> None:
        super().__init__(lambda _: HttpResponse(200, JSON, b"{}"))
        self.where, self.left = where, times
        self.ticks = 0

    def _break(self, where: str) -> None:
        if where == self.where and self.left:
            self.left -= 1
            raise KeyError("spec")

    def tick(self, now: float) -> float | None:
        self.ticks += 1
        self._break("tick")
        return now

    def handle(self, request: HttpRequest, now: float) -> Any:
        self._break("handle")
        return super().handle(request, now)

    def read(self, stream: int, now: float) -> Any:
        self._break("read")
        return super().read(stream, now)


class Reading(StubCluster):
    """A POST is read for as long as no GET has been answered."""

    def __init__(self) -> None:
        super().__init__(lambda _: HttpResponse(200, JSON, b"{}"))
        self.answered = threading.Event()
        self.threads: list[str] = []

    def begin(self, request: HttpRequest, now: float) -> Any:
        if request.method == "GET":
            self.answered.set()
            return self.handle(request, now)
        return PendingRequest(DeferredWork(self._read), lambda now: self.handle(request, now))

    def _read(self) -> None:
        self.threads.append(threading.current_thread().name)
        if not self.answered.wait(240):
            raise TimeoutError("nobody was answered meanwhile")


@pytest.mark.parametrize("short", [True, False])
def test_others_are_answered_while_a_long_request_is_read(short: bool) -> None:
    async def scene() -> None:
        cluster = Reading()
        async with served(cluster) as (_, port):
            long, other = await Client.to(port), await Client.to(port)
            # A body in one piece takes the short way, one that comes later the general one.
            long.get("/x", method="POST", body=b"{}" if short else b"{}" * 50_000)
            while not cluster.threads:
                await asyncio.sleep(0.01)
            other.get("/y")
            assert (await other.whole())[0] == 200
            assert (await long.whole())[0] == 200
        assert cluster.threads == ["long-requests_0"]
        await Client.close_all()

    asyncio.run(asyncio.wait_for(scene(), 240))


def test_a_fault_while_a_long_request_is_read_is_of_that_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        cluster = Reading()
        cluster._read = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        server_loop = ServerLoop(cluster)
        answer = await server_loop.ask(HttpRequest("POST", "/x"))
        assert isinstance(answer, HttpResponse)
        assert (answer.status, b"ZeroDivisionError" in answer.body) == (500, True)
        await server_loop.stop()

    asyncio.run(asyncio.wait_for(scene(), 240))
    assert "ZeroDivisionError" in lines_of(caplog)[0]


def ticked(
    cluster: Breaking, ends: Callable[[list[str]], bool], caplog: pytest.LogCaptureFixture
) -> list[str]:
    """Messages of a server loop that runs until that holds of them."""
    message: list[str] = []

    async def scene() -> None:
        server_loop = ServerLoop(cluster, None, message.append)
        server_loop.start()
        while not ends(message):
            server_loop._schedule_soon()
            await asyncio.sleep(0.001)
        await server_loop.stop()

    with caplog.at_level(logging.ERROR, "stowplan.cluster"):
        asyncio.run(asyncio.wait_for(scene(), 240))
    return message


def test_a_failed_tick_is_logged_and_repeated(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Breaking("tick", 5)
    assert ticked(cluster, lambda _: cluster.ticks > 10, caplog) == []
    (logged_fault,) = lines_of(caplog)
    assert logged_fault.startswith("Internal error during=tick err=KeyError('spec') in ")
    assert "test_local_cluster.py" in logged_fault
    assert "(tick)" in logged_fault


def test_repeated_tick_failures_end_the_cluster(caplog: pytest.LogCaptureFixture) -> None:
    (message,) = ticked(Breaking("tick", 10**6), bool, caplog)
    assert message.startswith("cluster stopped: KeyError('spec') in test_local_cluster.py:")
    assert len(caplog.messages) == 1


def test_requests_and_watches_that_meet_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        cluster = Breaking("handle", 1)
        server_loop = ServerLoop(cluster)
        server_loop.start()
        for status in (500, 200):
            answer = await server_loop.ask(HttpRequest("POST", "/x"))
            assert isinstance(answer, HttpResponse)
            assert answer.status == status
            if status == 500:
                tree = json.loads(answer.body)
                assert tree["message"].startswith("Internal error occurred: KeyError('spec') in ")
        cluster.where, cluster.left = "read", 1
        stream = await server_loop.ask(HttpRequest("GET", "/watch"))
        assert not isinstance(stream, HttpResponse)
        assert (await server_loop.read(stream.number)).end
        await server_loop.stop()

    with caplog.at_level(logging.ERROR, "stowplan.cluster"):
        asyncio.run(scene())
    assert [line.partition(" err=")[0] for line in lines_of(caplog)] == [
        "Internal error during=POST /x",
        "Internal error during=a watch",
    ]


def test_the_number_of_logged_faults_is_bounded(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_loop_module, "LOGGED_FAULTS_MAX", 3)
    server_loop = ServerLoop(StubCluster())
    with caplog.at_level(logging.ERROR, "stowplan.cluster"):
        for number in (1, 1, 2, 3, 4, 5):
            try:
                raise KeyError(number)
            except KeyError as fault:
                server_loop.logged_fault("trying", fault)
    assert len(caplog.messages) == 3
