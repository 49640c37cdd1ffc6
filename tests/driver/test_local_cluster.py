"""A cluster in this process: what it cannot begin with, and what ends it, is said in a line."""

import asyncio
import json
import logging
import socket
import sqlite3
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from stowplan.cli.up import command
from stowplan.cluster.later import Later, Pending
from stowplan.cluster.wire import Request, Response
from stowplan.driver import pump as pumping
from stowplan.driver import sqlite_store
from stowplan.driver.local_cluster import Running, Settings, UpError, running
from stowplan.driver.pump import Pump
from stowplan.driver.sqlite_store import COMMITTED, FILE
from tests.driver.stub_face import JSON, Client, StubFace, served


@pytest.fixture(autouse=True)
def heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Logs are heard here, whoever has set them up before."""
    monkeypatch.setattr(logging.getLogger("stowplan"), "propagate", True)


MAPS = "/api/v1/namespaces/default/configmaps"
KEY = "configmaps/default/a"


def asked(cluster: Running, name: str) -> Request:
    token = json.loads(cluster.kubeconfig.read_text())["users"][0]["user"]["token"]
    body = json.dumps({"metadata": {"name": name}}).encode()
    return Request("POST", MAPS, (), {"authorization": f"Bearer {token}"}, body)


def begun(settings: Settings, scene: Callable[[Running], Any] | None = None) -> str:
    """Start, let `scene` happen, stop; what it could not begin or go on with."""

    async def life() -> str:
        async with running(settings) as cluster:
            if scene is not None:
                await scene(cluster)
            return cluster.failed.result() if cluster.failed.done() else ""

    return asyncio.run(asyncio.wait_for(life(), 30))


async def one_write(cluster: Running) -> None:
    answer = await cluster.pump.ask(asked(cluster, "a"))
    assert isinstance(answer, Response)
    assert answer.status == 201, answer


def refusal(settings: Settings) -> str:
    with pytest.raises(UpError) as refused:
        begun(settings)
    return str(refused.value)


def rewritten(directory: Path, value: bytes) -> None:
    """Exchange what is stored under KEY, checksum and all."""
    file = sqlite3.connect(directory / FILE)
    (version,) = file.execute("SELECT version FROM objects WHERE key = ?", (KEY,)).fetchone()
    value = value.replace(b"VERSION", str(version).encode())
    checksum = sqlite_store._checksum(KEY, version, value)
    changed = "UPDATE objects SET value = ?, checksum = ? WHERE key = ?"
    file.execute(changed, (value, checksum, KEY))
    file.commit()
    file.close()


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
    ("value", "said"),
    [
        (b"{", "is no object"),
        (b"[]", "is no object"),
        (b'{"kind":"ConfigMap","apiVersion":"v1"}', "it has no metadata"),
        (changed(resourceVersion=None), "resourceVersion: got None, wanted"),
        (changed(resourceVersion="1x"), "resourceVersion: got '1x', wanted"),
        (changed(resourceVersion="99999999"), "resourceVersion: got '99999999', wanted"),
        (changed(name="b"), "it is 'default/b'"),
        (changed(uid=7), "uid: got 7, wanted a text"),
        (changed(labels={"a": 1}), "labels is no map of texts"),
        (json.dumps(GOOD).encode(), "it is not written as objects are stored"),
        (changed(ownerReferences=[7]), "an object that cannot be understood"),
    ],
)
def test_records_that_are_no_objects_are_refused(tmp_path: Path, value: bytes, said: str) -> None:
    settings = Settings(data=tmp_path)
    assert begun(settings, one_write) == ""
    rewritten(tmp_path, value)
    before = (tmp_path / FILE).read_bytes()
    text = refusal(settings)
    assert said in text
    assert f"{tmp_path / FILE}: damaged: " in text
    assert "\n" not in text
    assert (tmp_path / FILE).read_bytes() == before
    rewritten(tmp_path, changed())
    assert begun(settings) == ""


@pytest.mark.parametrize("name", [FILE, f"{FILE}-wal", COMMITTED])
def test_files_that_are_taken_away_end_it(tmp_path: Path, name: str) -> None:
    async def scene(cluster: Running) -> None:
        await one_write(cluster)
        (tmp_path / name).rename(tmp_path / "elsewhere")
        with pytest.raises(sqlite_store.StoreError):
            await cluster.pump.ask(asked(cluster, "b"))

    text = begun(Settings(data=tmp_path), scene)
    assert f"{tmp_path / name}: removed or exchanged while the cluster ran" in text
    assert "\n" not in text


def test_a_taken_port_is_told_once(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        text = refusal(Settings(port=port, kubeconfig=tmp_path / "k"))
    assert text == (
        f"port {port} of 127.0.0.1: Address already in use; name another with --port, or 0 for any "
        "that is free"
    )


@pytest.mark.parametrize("host", ["nosuch.invalid", "192.0.2.1"])
def test_an_address_that_is_not_ours_is_told(tmp_path: Path, host: str) -> None:
    text = refusal(Settings(host=host, kubeconfig=tmp_path / "k"))
    assert text.startswith(f"{host}: ")
    assert text.endswith("; name another with --bind")


@pytest.mark.parametrize("option", ["--data", "--kubeconfig", "--token-file", "--cluster"])
def test_nothing_is_no_path(option: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ran = CliRunner().invoke(command, ["--no-scheduler", "--port", "0", option, ""])
    assert ran.exit_code == 2
    assert f"Invalid value for '{option}': got nothing, wanted a path" in ran.output
    assert list(tmp_path.iterdir()) == []


# Faults of our own: a face that breaks.


class Breaking(StubFace):
    """Breaks where it is told to, as often as it is told to."""

    def __init__(self, where: str, times: int) -> None:
        super().__init__(lambda _: Response(200, JSON, b"{}"))
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

    def handle(self, request: Request, now: float) -> Any:
        self._break("handle")
        return super().handle(request, now)

    def read(self, stream: int, now: float) -> Any:
        self._break("read")
        return super().read(stream, now)


class Reading(StubFace):
    """A POST is read for as long as no GET has been answered."""

    def __init__(self) -> None:
        super().__init__(lambda _: Response(200, JSON, b"{}"))
        self.answered = threading.Event()
        self.threads: list[str] = []

    def begin(self, request: Request, now: float) -> Any:
        if request.method == "GET":
            self.answered.set()
            return self.handle(request, now)
        return Pending(Later(self._read), lambda now: self.handle(request, now))

    def _read(self) -> None:
        self.threads.append(threading.current_thread().name)
        if not self.answered.wait(20):
            raise TimeoutError("nobody was answered meanwhile")


@pytest.mark.parametrize("short", [True, False])
def test_others_are_answered_while_a_long_request_is_read(short: bool) -> None:
    async def scene() -> None:
        face = Reading()
        async with served(face) as (_, port):
            long, other = await Client.to(port), await Client.to(port)
            # A body in one piece takes the short way, one that comes later the general one.
            long.get("/x", method="POST", body=b"{}" if short else b"{}" * 50_000)
            while not face.threads:
                await asyncio.sleep(0.01)
            other.get("/y")
            assert (await other.whole())[0] == 200
            assert (await long.whole())[0] == 200
        assert face.threads == ["long-requests_0"]
        await Client.close_all()

    asyncio.run(asyncio.wait_for(scene(), 30))


def test_a_fault_while_a_long_request_is_read_is_of_that_request(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene() -> None:
        face = Reading()
        face._read = lambda: 1 / 0  # type: ignore[method-assign, assignment, return-value]
        pump = Pump(face)
        answer = await pump.ask(Request("POST", "/x"))
        assert isinstance(answer, Response)
        assert (answer.status, b"ZeroDivisionError" in answer.body) == (500, True)
        await pump.stop()

    asyncio.run(asyncio.wait_for(scene(), 30))
    assert "ZeroDivisionError" in caplog.text


def pumped(face: Breaking, seconds: float, caplog: pytest.LogCaptureFixture) -> list[str]:
    """What is said when a pump turns for a while."""
    said: list[str] = []

    async def scene() -> None:
        pump = Pump(face, None, said.append)
        pump.start()
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            pump._soon()
            await asyncio.sleep(0.001)
        await pump.stop()

    with caplog.at_level(logging.ERROR, "stowplan.cluster"):
        asyncio.run(scene())
    return said


def test_a_turn_that_fails_is_told_and_made_again(caplog: pytest.LogCaptureFixture) -> None:
    face = Breaking("tick", 5)
    assert pumped(face, 0.3, caplog) == []
    assert face.ticks > 10
    (told,) = caplog.messages
    assert told.startswith("letting time pass: a fault of Stowplan: KeyError('spec') in ")
    assert "test_local_cluster.py" in told
    assert "(tick)" in told


def test_a_turn_that_fails_for_good_ends_the_cluster(caplog: pytest.LogCaptureFixture) -> None:
    (said,) = pumped(Breaking("tick", 10**6), 0.5, caplog)
    assert said.startswith("the cluster cannot go on: KeyError('spec') in test_local_cluster.py:")
    assert len(caplog.messages) == 1


def test_requests_and_watches_that_meet_a_fault(caplog: pytest.LogCaptureFixture) -> None:
    async def scene() -> None:
        face = Breaking("handle", 1)
        pump = Pump(face)
        pump.start()
        for status in (500, 200):
            answer = await pump.ask(Request("POST", "/x"))
            assert isinstance(answer, Response)
            assert answer.status == status
            if status == 500:
                tree = json.loads(answer.body)
                assert tree["message"].startswith("Internal error occurred: KeyError('spec') in ")
        face.where, face.left = "read", 1
        stream = await pump.ask(Request("GET", "/watch"))
        assert not isinstance(stream, Response)
        assert (await pump.read(stream.number)).end
        await pump.stop()

    with caplog.at_level(logging.ERROR, "stowplan.cluster"):
        asyncio.run(scene())
    assert [text.partition(":")[0] for text in caplog.messages] == ["POST /x", "a watch"]


def test_only_so_many_faults_are_told(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pumping, "FAULTS_MAX", 3)
    pump = Pump(StubFace())
    with caplog.at_level(logging.ERROR, "stowplan.cluster"):
        for number in (1, 1, 2, 3, 4, 5):
            try:
                raise KeyError(number)
            except KeyError as fault:
                pump.told("trying", fault)
    assert len(caplog.messages) == 3
