"""Configuration files of Kueue: ours, and the one that Kueue's manager reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.batch.queue_models.kueue.kueue_options import (
    STRATEGIES,
    KueueOptions,
    PodsReadyOptions,
)
from stowplan.framework.problems import ConfigError
from stowplan.simulation.scheduler_configuration import read_deciders

OWN = """
apiVersion: config.kueue.x-k8s.io/%s
kind: Configuration
health: {healthProbeBindAddress: ":8081"}
internalCertManagement: {enable: false}
integrations: {frameworks: [batch/job, pod]}
featureGates: {TASBalancedPlacement: true, LocalQueueDefaulting: true}
%s
"""


def read(directory: Path, text: str, compat: str = "") -> KueueOptions:
    file = directory / "kueue.yaml"
    file.write_text(text)
    found = read_deciders(file, compat=compat, admits=True).kueue
    assert found is not None
    return found


def test_the_configuration_of_kueue_s_manager(tmp_path: Path) -> None:
    fair = "fairSharing: {enable: true, preemptionStrategies: [LessThanInitialShare]}"
    found = read(tmp_path, OWN % ("v1beta1", fair))
    assert found.strategies == ("LessThanInitialShare",)
    assert "TASBalancedPlacement" in found.gates
    assert found.is_fixed
    assert not read(tmp_path, OWN % ("v1beta1", "fairSharing: {enable: false}")).is_fair
    assert read(tmp_path, OWN % ("v1beta2", "fairSharing: {}")).strategies == STRATEGIES
    assert not read(tmp_path, OWN % ("v1beta2", ""), "kueue").is_fixed
    more = "resources: {transformations: [{input: a.com/x, strategy: Replace, outputs: {cpu: 2}}]}"
    (one,) = read(tmp_path, OWN % ("v1beta2", more)).transformations
    assert (one.resource, one.is_replaced, one.outputs) == ("a.com/x", True, {"cpu": 2.0})


def test_all_or_nothing_with_ready_pods(tmp_path: Path) -> None:
    text = """
scheduler: kueue
waitForPodsReady:
  timeout: 10m
  blockAdmission: true
  requeuingStrategy: {timestamp: Creation, backoffLimitCount: 3, backoffBaseSeconds: 30}
"""
    wanted = PodsReadyOptions(600.0, True, 30.0, 3600.0, 3, False, 600.0)
    assert read(tmp_path, text).pods_ready == wanted
    assert read(tmp_path, "scheduler: kueue\n").pods_ready is None
    off = "scheduler: kueue\nwaitForPodsReady: {enable: false}\n"
    assert read(tmp_path, off).pods_ready is None


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("waitForPodsReady: {timeOut: 5m}", "timeout"),
        ("waitForPodsReady: {timeout: soon}", "a duration such as 5m"),
        ("waitForPodsReady: {requeuingStrategy: {timestamp: Never}}", "Eviction or Creation"),
        ("waitForPodsReady: 3", "a mapping with"),
        ("resources: {transformations: [{outputs: {}}]}", "each with an input"),
        ("health: {}", "health: Unknown field"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read(tmp_path, f"scheduler: kueue\n{text}\n")
