"""KAI's fractions of GPUs by GpuShare are for simulations: a live scheduler refuses them."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from stowplan.client.kubeconfig import ClientConfig
from stowplan.driver.live.configuration_files import live_problems, read_configuration_files
from stowplan.driver.live.scheduler_server import SchedulerServerOptions
from stowplan.driver.process import ProcessOptions, check_startup
from stowplan.framework import ConfigError

TEXT = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- plugins: {multiPoint: {enabled: [{name: GpuShare}]}}
  pluginConfig:
  - {name: GpuShare, args: {policy: BestFit, conventions: [NAMES], reservationImage: x}}
"""


@pytest.mark.parametrize(
    ("names", "is_refused"),
    [("hami, kai", True), ("hami, kai-reservations", False), ("hami", False), ("", False)],
)
def test_kai_is_refused(tmp_path: Path, names: str, is_refused: bool) -> None:
    file = tmp_path / "scheduler.yaml"
    file.write_text(TEXT.replace("NAMES", names))
    deciders, _ = read_configuration_files([str(file)])
    problems = live_problems(deciders.configuration, "scheduler.yaml")
    assert (problems is not None) == is_refused
    if problems is None:
        return
    assert "profiles[0].pluginConfig[GpuShare].args.conventions" in str(problems)
    assert 'Invalid value: "kai"' in str(problems)
    # Before anything is asked of the API server.
    options = SchedulerServerOptions(ClientConfig("http://127.0.0.1:1", "test"), None)
    with pytest.raises(ConfigError, match="expected 'kai-reservations' on a live"):
        asyncio.run(check_startup(deciders, options, ProcessOptions()))
