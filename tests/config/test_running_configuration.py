"""What a running scheduler shows of its configuration gives the same deciders again."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.assembly.plugin_files import plugins_of_file
from stowplan.assembly.running_configuration import deciders_of_running, running_configuration
from stowplan.config import digest, effective
from stowplan.framework.feature_gates import feature_gates_of

PLUGIN = """
class Packed:
    name = "Packed"

    def score(self, node):
        return 1
"""
KUEUE = """
scheduler: kueue
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
waitForPodsReady: {enable: true, timeout: 5m}
featureGates: {TASBalancedPlacement: true}
"""
KAI = """
scheduler: kai
actions: allocate, reclaim
batch: {defaultQueue: red}
"""
PROFILES = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: mine
  plugins: {multiPoint: {enabled: [{name: Packed, weight: 3}]}}
"""


def read_again(deciders: Deciders, *plugin_files: str) -> Deciders | None:
    tree = running_configuration(deciders, effective(deciders.configuration), plugin_files)
    return deciders_of_running(msgspec.json.decode(msgspec.json.encode(tree)))


@pytest.mark.parametrize(
    ("texts", "compat", "gates"),
    [
        ([KAI], (), {}),
        ([], ("kai",), {}),
        ([], ("volcano-1.15",), {}),
        (["scheduler: volcano\nactions: enqueue, allocate\n"], (), {}),
        (["actions: allocate\ntiers: [{plugins: [{name: gang}]}]\n"], ("kube-batch-0.5",), {}),
        ([KUEUE], (), {}),
        ([], ("kueue",), {}),
        ([KUEUE, KAI], (), {}),
        ([PROFILES], (), {}),
        ([], (), {"GenericWorkload": True}),
        ([], ("kube-scheduler-1.36",), {}),
    ],
)
def test_the_deciders_are_the_same(
    texts: list[str], compat: tuple[str, ...], gates: dict[str, bool], tmp_path: Path
) -> None:
    file = tmp_path / "packed.py"
    file.write_text(PLUGIN)
    plugins = plugins_of_file(str(file))
    files = [ConfigText(text, f"{number}.yaml") for number, text in enumerate(texts)]
    given = deciders_of(files, plugins, compat, feature_gates_of(gates), admits=True)
    found = read_again(given, str(file))
    assert found is not None
    assert digest(found.configuration) == digest(given.configuration)
    for name in ("kueue", "compat", "group_compat", "model_compat", "gates"):
        assert getattr(found, name) == getattr(given, name), name
    assert [one.plugin.name for one in found.registry.third_party()] == ["Packed"]
    assert found.configuration.source == given.configuration.source


def test_the_default_configuration_is_none() -> None:
    """So that each command has its own default."""
    assert read_again(deciders_of([])) is None
