"""`stowplan run` as a process of its own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

RENEW_S = 8.0
"""Longer than a process stands still on a machine that has very much to do."""
CONFIG = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "profiles": [{"schedulerName": "stowplan"}],
    "leaderElection": {
        "leaseDuration": "10s",
        "renewDeadline": f"{RENEW_S:g}s",
        "retryPeriod": "500ms",
        "resourceName": "stowplan",
    },
}


def kubeconfig(path: Path, server: str, **user: Any) -> str:
    tree = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": user or {"token": "t"}}],
    }
    path.write_text(json.dumps(tree))
    return str(path)


class Replica:
    """One process. lines: of its log."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.lines: list[dict[str, Any]] = []
        self.raw: list[str] = []
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            text = line.decode().rstrip()
            self.raw.append(text)
            if text.startswith("{"):
                self.lines.append(json.loads(text))

    def has_logged(self, text: str) -> bool:
        return any(text in line["msg"] for line in self.lines)

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    async def ended(self, timeout_s: float = 240.0) -> int:
        code = await asyncio.wait_for(self.process.wait(), timeout_s)
        await self._reading
        return code


@asynccontextmanager
async def replica(*arguments: str) -> AsyncIterator[Replica]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "stowplan",
        "run",
        "--log-format",
        "json",
        *arguments,
        stderr=asyncio.subprocess.PIPE,
        env=os.environ | {"NUMBA_DISABLE_JIT": "0"},
    )
    one = Replica(process)
    try:
        yield one
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
            await one.ended()
