"""Configuration files of Kueue: ours, and the one that Kueue's manager reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.batch.queue_models.kueue.kueue_options import (
    STRATEGIES,
    KueueOptions,
    PodsReadyOptions,
    UsageOptions,
)
from stowplan.framework.problems import ConfigError
from stowplan.simulation.scheduler_configuration import read_deciders
from tests.cli.run import run
from tests.simulation.kueue.test_job_admission import flavor, job, kueue, node, queue, written

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


def test_resources_that_are_excluded_and_fields_that_are_not_read(tmp_path: Path) -> None:
    text = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
manageJobsWithoutQueueName: true
resources:
  excludeResourcePrefixes: [example.com]
  deviceClassMappings: []
"""
    options = read(tmp_path, text)
    assert options.excluded == ("example.com",)
    assert options.warnings == (
        "manageJobsWithoutQueueName is not read",
        "resources.deviceClassMappings is not read",
    )
    made = job("a", "one", 1)
    container = made["spec"]["template"]["spec"]["containers"][0]
    container["resources"]["limits"] = {"example.com/card": "1"}
    container["resources"]["requests"]["example.com/card"] = "1"
    file = written(tmp_path, node(), flavor(), queue("one", "4"), made)
    for config, code in (("scheduler: kueue\n", 1), (text, 0)):
        (tmp_path / "c.yaml").write_text(config)
        asked = run("explain", "job/a", "-f", str(file), "--config", str(tmp_path / "c.yaml"))
        assert asked.code == code
        assert ("manageJobsWithoutQueueName is not read" in asked.err) is (code == 0)


def test_a_check_of_multikueue_is_reported_as_not_modelled(tmp_path: Path) -> None:
    check = kueue("AdmissionCheck", "multi", controllerName="kueue.x-k8s.io/multikueue")
    rules = {"admissionChecks": [{"name": "multi"}]}
    own = queue("one", "4", admissionChecksStrategy=rules)
    file = written(tmp_path, node(), flavor(), check, own, job("a", "one", 1))
    (tmp_path / "c.yaml").write_text("scheduler: kueue\n")
    asked = run("queues", "-f", str(file), "--config", str(tmp_path / "c.yaml"))
    assert "AdmissionCheck multi: MultiKueue is not modelled" in asked.out


USAGE = """
admissionFairSharing:
  usageHalfLifeTime: %s
  usageSamplingInterval: 1h30m
  resourceWeights: {cpu: 2, memory: %s}
"""


def test_usage_of_local_queues(tmp_path: Path) -> None:
    found = read(tmp_path, OWN % ("v1beta2", USAGE % ("168h", "0.5")))
    assert found.usage == UsageOptions(604_800.0, 5400.0, {"cpu": 2.0, "memory": 0.5})
    assert not found.warnings
    assert read(tmp_path, "scheduler: kueue\nadmissionFairSharing: {}\n").usage == UsageOptions()
    assert read(tmp_path, "scheduler: kueue\n").usage is None


def test_mistakes_about_usage_are_named(tmp_path: Path) -> None:
    text = "scheduler: kueue" + USAGE % ("-1h", "-2") + "  decay: 1h\n"
    with pytest.raises(ConfigError) as error:
        read(tmp_path, text.replace("1h30m", "0s"))
    reported = str(error.value)
    path = "admissionFairSharing."
    assert (
        f"{path}usageHalfLifeTime: Invalid value: '-1h': expected greater than or equal" in reported
    )
    assert (
        f"{path}resourceWeights[memory]: Invalid value: -2: expected greater than or equal"
        in reported
    )
    assert f"{path}decay: Unknown field" in reported
    with pytest.raises(
        ConfigError, match=r"usageSamplingInterval: Invalid value.*expected greater than 0"
    ):
        read(tmp_path, "scheduler: kueue" + (USAGE % ("1h", "1")).replace("1h30m", "-5m"))
    with pytest.raises(ConfigError, match="expected a duration such as"):
        read(tmp_path, "scheduler: kueue" + USAGE % ("soon", "1"))
