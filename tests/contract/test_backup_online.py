"""`stowplan backup` of a cluster that is written to: a state that the cluster once had."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from tests.contract.up_process import Caller, Up, start, up

MAPS = "/api/v1/namespaces/default/configmaps"
WRITERS = 4
ANSWERS_MIN = 60


async def write(
    cluster: Up, number: int, acknowledged: dict[str, int], stop: asyncio.Event
) -> None:
    caller = await Caller.to(cluster.port, cluster.token)
    count = 0
    while not stop.is_set():
        name = f"w{number}-{count}"
        status, made = await caller.ask("POST", MAPS, {"metadata": {"name": name}})
        assert status == 201, made
        acknowledged[name] = int(made["metadata"]["resourceVersion"])
        count += 1
    caller.close()


async def backed_up(cluster: Up, data: Path, copy: Path) -> tuple[dict[str, int], dict[str, int]]:
    """What was acknowledged before a copy was begun, and after it was made."""
    acknowledged: dict[str, int] = {}
    stop = asyncio.Event()
    writers = [
        asyncio.ensure_future(write(cluster, number, acknowledged, stop))
        for number in range(WRITERS)
    ]
    while len(acknowledged) < ANSWERS_MIN:
        await asyncio.sleep(0.01)
    before = dict(acknowledged)
    command = [sys.executable, "-m", "stowplan", "backup", str(data), str(copy)]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.DEVNULL)
    assert await process.wait() == 0
    while len(acknowledged) < len(before) + ANSWERS_MIN:
        await asyncio.sleep(0.01)
    stop.set()
    await asyncio.gather(*writers)
    return before, acknowledged


async def found(cluster: Up) -> tuple[int, dict[str, int]]:
    caller = await Caller.to(cluster.port, cluster.token)
    status, listed = await caller.ask("GET", MAPS)
    assert status == 200
    caller.close()
    items = (one["metadata"] for one in listed["items"])
    names = {one["name"]: int(one["resourceVersion"]) for one in items if one["name"][0] == "w"}
    return int(listed["metadata"]["resourceVersion"]), names


@pytest.mark.slow
def test_a_copy_made_under_writes_is_a_state_of_the_cluster(tmp_path: Path) -> None:
    data, copy, restored = tmp_path / "data", tmp_path / "copy", tmp_path / "restored"
    cluster = start(tmp_path, "--data", str(data))
    try:
        before, after = asyncio.run(asyncio.wait_for(backed_up(cluster, data, copy), 240))
    finally:
        cluster.kill()
        assert cluster.process.stdout is not None
        cluster.process.stdout.close()
    command = [sys.executable, "-m", "stowplan", "backup", "--restore", str(restored), str(copy)]
    subprocess.run(command, check=True, timeout=240, stdout=subprocess.DEVNULL)
    (tmp_path / "second").mkdir()
    with up(tmp_path / "second", "--data", str(restored)) as second:
        version, kept = asyncio.run(asyncio.wait_for(found(second), 240))
    # Nothing that was acknowledged before is missing, and of the rest there is all up to a version.
    assert before.items() <= kept.items()
    newest = max(kept.values())
    assert kept == {name: one for name, one in after.items() if one <= newest}
    assert version >= newest
