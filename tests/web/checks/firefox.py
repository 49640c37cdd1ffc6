"""Firefox without a display, driven by the WebDriver BiDi protocol that it speaks itself: no
geckodriver is needed."""

from __future__ import annotations

import asyncio
import itertools
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

FIREFOX = shutil.which("firefox-esr") or shutil.which("firefox")
MISSING = "needs Firefox: apt install firefox-esr"
LISTENING = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
START_S = 90.0


class Firefox:
    """One tab. messages: of the console, warnings and errors."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse) -> None:
        self.messages: list[str] = []
        self._socket = socket
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._reading = asyncio.create_task(self._read())
        self._tab = ""

    async def _read(self) -> None:
        async for message in self._socket:
            tree = message.json()
            if tree.get("method") == "log.entryAdded":
                entry = tree["params"]
                if entry["level"] in ("warn", "error"):
                    self.messages.append(f"{entry['level']}: {entry['text']}")
            elif tree.get("id") in self._waiting:
                self._waiting.pop(tree["id"]).set_result(tree)

    async def send(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        answer = self._waiting[number] = asyncio.get_running_loop().create_future()
        await self._socket.send_json({"id": number, "method": method, "params": params})
        tree = await asyncio.wait_for(answer, 60)
        assert tree["type"] == "success", tree
        return tree["result"]

    async def begin(self) -> None:
        await self.send("session.new", capabilities={})
        await self.send("session.subscribe", events=["log.entryAdded"])
        tree = await self.send("browsingContext.getTree")
        self._tab = tree["contexts"][0]["context"]

    async def visit(self, url: str) -> None:
        await self.send(
            "browsingContext.navigate", context=self._tab, url="about:blank", wait="complete"
        )
        await self.send("browsingContext.navigate", context=self._tab, url=url, wait="complete")

    async def until(self, script: str, attempts: int = 400) -> Any:
        """What the body of a function returns once that is true."""
        for _ in range(attempts):
            answer = await self.send(
                "script.evaluate", expression=f"(() => {{{script}}})()",
                target={"context": self._tab}, awaitPromise=False,
            )  # fmt: skip
            assert answer["type"] == "success", answer
            value = answer["result"].get(
                "value", answer["result"]["type"] not in ("null", "undefined")
            )
            if value:
                return value
            await asyncio.sleep(0.05)
        raise AssertionError(f"not true: {script}")

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)


@asynccontextmanager
async def firefox(folder: Path) -> AsyncIterator[Firefox]:
    """A new Firefox with an empty profile in a folder."""
    assert FIREFOX is not None
    options = (
        "--headless",
        "--no-remote",
        "--remote-debugging-port",
        "0",
        "--profile",
        str(folder),
    )
    process = await asyncio.create_subprocess_exec(
        FIREFOX,
        *options,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        env={"HOME": str(folder), "PATH": "/usr/bin:/bin", "MOZ_HEADLESS": "1"},
    )
    assert process.stderr is not None
    try:
        address = await asyncio.wait_for(_address(process.stderr), START_S)
        draining = asyncio.create_task(process.stderr.read())
        async with (
            aiohttp.ClientSession() as session,
            session.ws_connect(f"{address}/session", max_msg_size=0) as socket,
        ):
            found = Firefox(socket)
            try:
                await found.begin()
                yield found
            finally:
                await found.close()
        draining.cancel()
        await asyncio.gather(draining, return_exceptions=True)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def _address(errors: asyncio.StreamReader) -> str:
    while line := await errors.readline():
        found = LISTENING.search(line.decode(errors="replace"))
        if found:
            return found[1]
    raise AssertionError("Firefox ended before it listened")
