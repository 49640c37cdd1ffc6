"""The tutorial `Run beside kube-scheduler`: a cluster, a dry run, a policy that differs."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.contract.up_process import Caller

PAGE = (Path(__file__).parents[2] / "docs" / "tutorials" / "beside-kube-scheduler.md").read_text()
(PLUGIN,) = re.findall(r'```python title="fill_first.py"\n(.*?)```', PAGE, re.DOTALL)
UP, DRY_RUN, *_ = re.findall(r"^    stowplan (.*)$", PAGE, re.MULTILINE)
WITH_PLUGIN = re.findall(r"^    stowplan (run .* --plugin .*)$", PAGE, re.MULTILINE)
LOG_LINES = re.findall(r"^    INFO .*(Decision differs .*)$", PAGE, re.MULTILINE)
DEPLOYMENT = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 16,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "web", "image": "web"}]},
        },
    },
}


@contextlib.contextmanager
def started(folder: Path, name: str, command: str) -> Iterator[Path]:
    """A running command; its output is in the file that is yielded."""
    output = folder / name
    with output.open("w") as sink:
        process = subprocess.Popen(
            [sys.executable, "-m", "stowplan", *command.split()],
            cwd=folder,
            stdout=sink,
            stderr=subprocess.STDOUT,
        )
        try:
            yield output
        finally:
            process.terminate()
            process.wait(timeout=240)


async def until(output: Path, pattern: str) -> str:
    """The first line of an output that has the pattern."""
    async with asyncio.timeout(240):
        while True:
            found = re.search(f".*{pattern}.*", output.read_text())
            if found:
                return found[0]
            await asyncio.sleep(0.1)


async def create_deployment(kubeconfig: Path) -> None:
    config = json.loads(kubeconfig.read_text())
    port = int(config["clusters"][0]["cluster"]["server"].rsplit(":", 1)[1])
    caller = await Caller.to(port, config["users"][0]["user"]["token"])
    path = "/apis/apps/v1/namespaces/default/deployments"
    status, body = await caller.ask("POST", path, DEPLOYMENT)
    caller.close()
    assert status == 201, body


def test_a_dry_run_reports_where_a_policy_would_differ(tmp_path: Path) -> None:
    (tmp_path / "fill_first.py").write_text(PLUGIN)
    assert DRY_RUN in WITH_PLUGIN[0]
    # Names and numbers differ from run to run, the words do not.
    shape = re.sub(r"web-\w+-\w+", "WEB", re.escape(LOG_LINES[0]).replace(r"\-", "-"))
    shape = re.sub(r"\d+", r"\\d+", shape).replace("WEB", r"web-\w+-\w+")

    async def steps() -> None:
        with started(tmp_path, "up.log", f"{UP} --port 0") as up:
            await until(up, "^kubectl|kubectl --kubeconfig")
            with started(tmp_path, "run.log", f"{WITH_PLUGIN[0]} --listen 0") as run:
                await until(run, "Informers synced")
                await create_deployment(tmp_path / "stowplan.kubeconfig")
                line = await until(run, shape)
                assert re.search(shape, line)

    asyncio.run(steps())
