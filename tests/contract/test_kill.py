"""Kill -9 under load, again and again on the same data: what was acknowledged is there."""

import asyncio
import contextlib
import random
from pathlib import Path
from typing import Any

import pytest

from tests.contract.up_process import Caller, Up, start

ROUNDS, SOAK_ROUNDS = 4, 200
WRITERS = 6
ANSWERS_MIN = 20
"""So many writes are acknowledged in each life."""
MAPS = "/api/v1/namespaces/default/configmaps"

Tree = dict[str, Any]


class Ledger:
    """What the clients were told. of each name: version and value acknowledged last, None if it
    was deleted; doubtful: values that were asked for and not answered, and may be there or not."""

    def __init__(self) -> None:
        self.known_writes: dict[str, tuple[int, str | None]] = {}
        self.unacknowledged: dict[str, list[str | None]] = {}
        self.seen = 0
        self.acknowledged = 0

    def asked(self, name: str, value: str | None) -> None:
        self.unacknowledged.setdefault(name, []).append(value)

    def answered(self, name: str, version: int, value: str | None) -> None:
        self.known_writes[name] = (version, value)
        self.unacknowledged[name].clear()
        self.acknowledged += 1

    def check(self, found: dict[str, tuple[int, str]], version: int) -> None:
        """The state after a restart."""
        assert version >= self.seen, "a watcher saw a version that is gone"
        for name, (acknowledged_at, value) in self.known_writes.items():
            at, now = found.get(name, (0, None))
            if at == acknowledged_at:
                assert now == value, name
            elif now != value:
                assert now in self.unacknowledged[name], f"{name}: told {value}, found {now}"
                assert now is None or at > acknowledged_at, name
        for name, (at, now) in found.items():
            assert name in self.known_writes or now in self.unacknowledged[name], name
            assert at <= version, name
            self.unacknowledged[name] = []
            self.known_writes[name] = (at, now)
        for name in [name for name in self.known_writes if name not in found]:
            self.known_writes[name] = (version, None)
            self.unacknowledged[name] = []


async def write(cluster: Up, ledger: Ledger, number: int, rng: random.Random) -> None:
    """Create, change and delete objects of its own until the connection breaks."""
    caller = await Caller.to(cluster.port, cluster.token)
    with contextlib.suppress(OSError):
        while True:
            name = f"w{number}-{rng.randrange(20)}"
            value: str | None = f"{rng.random()}"
            there = ledger.known_writes.get(name, (0, None))[1] is not None
            if not there:
                ask = ("POST", MAPS, {"metadata": {"name": name}, "data": {"v": value}}, "json")
            elif rng.random() < 0.3:
                value = None
                ask = ("DELETE", f"{MAPS}/{name}", None, "json")
            else:
                ask = ("PATCH", f"{MAPS}/{name}", {"data": {"v": value}}, "merge-patch")
            ledger.asked(name, value)
            status, body = await caller.ask(*ask)
            assert status in (200, 201), (status, body)
            version = int(body.get("metadata", {}).get("resourceVersion", 0))
            ledger.answered(name, version, value)
    caller.close()


async def watch(cluster: Up, ledger: Ledger, since: int) -> None:
    """Every version that is shown is newer than all before, those of earlier lives included."""
    caller = await Caller.to(cluster.port, cluster.token)
    caller.send("GET", f"{MAPS}?watch=true&resourceVersion={since}")
    latest = since
    with contextlib.suppress(OSError, asyncio.IncompleteReadError):
        async for event in caller.lines():
            assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
            version = int(event["object"]["metadata"]["resourceVersion"])
            assert version > latest, f"{version} after {latest}"
            latest = version
            ledger.seen = max(ledger.seen, version)
    caller.close()


async def one_life(directory: Path, ledger: Ledger, rng: random.Random) -> None:
    """Start on what the last one left, look at it, load it, kill it."""
    cluster = start(directory, "--data", str(directory / "data"))
    try:
        caller = await Caller.to(cluster.port, cluster.token)
        status, body = await caller.ask("GET", MAPS)
        assert status == 200, body
        version = int(body["metadata"]["resourceVersion"])
        found = {
            item["metadata"]["name"]: (
                int(item["metadata"]["resourceVersion"]),
                item["data"]["v"],
            )
            for item in body["items"]
            if item["metadata"]["name"].startswith("w")
        }
        caller.close()
        ledger.check(found, version)
        tasks = [
            asyncio.ensure_future(write(cluster, ledger, number, rng)) for number in range(WRITERS)
        ]
        tasks += [asyncio.ensure_future(watch(cluster, ledger, version)) for _ in range(2)]
        # After so many answers, not after a time: on a busy machine there would be none.
        enough = ledger.acknowledged + rng.randrange(ANSWERS_MIN, 10 * ANSWERS_MIN)
        async with asyncio.timeout(240):
            while ledger.acknowledged < enough:
                await asyncio.sleep(0.001)
        cluster.kill()
        await asyncio.wait_for(asyncio.gather(*tasks), 240)
    finally:
        if cluster.process.poll() is None:
            cluster.process.kill()
        cluster.process.wait()
        assert cluster.process.stdout is not None
        cluster.process.stdout.close()


def lives(directory: Path, count: int, seed: int) -> None:
    ledger = Ledger()
    rng = random.Random(seed)
    for _ in range(count):
        asyncio.run(one_life(directory, ledger, rng))
    assert ledger.acknowledged >= ANSWERS_MIN * count


@pytest.mark.slow
def test_no_acknowledged_write_is_lost(tmp_path: Path) -> None:
    lives(tmp_path, ROUNDS, seed=7)


@pytest.mark.soak
def test_no_acknowledged_write_is_lost_in_the_long_run(tmp_path: Path) -> None:
    lives(tmp_path, SOAK_ROUNDS, seed=random.randrange(1 << 30))


@pytest.mark.parametrize(
    ("found", "version"),
    [
        ({}, 9),
        ({"a": (4, "old")}, 9),
        ({"a": (5, "x"), "b": (9, "never asked for")}, 9),
        ({"a": (5, "x")}, 4),
    ],
)
def test_the_ledger_notices(found: dict[str, tuple[int, str]], version: int) -> None:
    """A store that loses the last write, goes back, makes things up, or forgets versions."""
    ledger = Ledger()
    ledger.asked("a", "x")
    ledger.answered("a", 5, "x")
    ledger.seen = 5
    ledger.asked("b", "y")
    with pytest.raises((AssertionError, KeyError)):
        ledger.check(found, version)
