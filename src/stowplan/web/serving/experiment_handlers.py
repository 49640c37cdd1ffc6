"""Requests of the screen of experiments: the list of sweeps, and their reports."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path

from aiohttp import web

from stowplan.inputs.input_error import InputError
from stowplan.objects.encoding.tree import Tree
from stowplan.web.model.experiment_folders import REPORT, experiment_trees, is_ended
from stowplan.web.report import write_report
from stowplan.web.serving.page_source import NotFound, Unavailable

REPORT_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'unsafe-inline'",
        "style-src 'unsafe-inline'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "sandbox allow-scripts allow-downloads",
    )
)
"""A report is a file that others may have written: in a sandbox its script has an origin of its
own, and reads nothing here. The file's own policy allows its one script and its one style."""


class ExperimentQuestions:
    """root: folder below which experiments are looked for, "" for none."""

    def __init__(self, root: str) -> None:
        self._root = root
        self._writing = asyncio.Lock()

    async def listed(self) -> Tree:
        """See `GET experiments`."""
        return {"experiments": await self._found()}

    async def report(self, folder: str) -> web.Response:
        """See `GET experiments/report`. Raises NotFound and Unavailable."""
        if not any(one["folder"] == folder for one in await self._found()):
            raise NotFound(f"experiment {folder[:200]!r} not found")
        async with self._writing:
            page = await asyncio.to_thread(_report, Path(self._root) / folder)
        answer = web.Response(text=page, content_type="text/html")
        answer.headers["Content-Security-Policy"] = REPORT_POLICY
        answer.enable_compression()
        return answer

    async def _found(self) -> list[Tree]:
        if not self._root:
            return []
        return await asyncio.to_thread(experiment_trees, Path(self._root))


def _report(folder: Path) -> str:
    """The report of an experiment: its file, else made of its results."""
    file = folder / REPORT
    try:
        if file.is_file():
            return file.read_text(encoding="utf-8")
        if not is_ended(folder):
            raise Unavailable("the experiment runs; its report can be made when it has ended")
        with tempfile.TemporaryDirectory(prefix="stowplan-report-") as place:
            return write_report(folder, Path(place) / REPORT).read_text(encoding="utf-8")
    except (InputError, OSError, UnicodeDecodeError) as problem:
        raise Unavailable(f"report of {folder.name}: {problem}") from None
