"""The examples of docs/gpu-sharing.md and docs/gpu-devices.md work."""

from __future__ import annotations

import re
from pathlib import Path

from stowplan import simulate

DOCS = Path(__file__).parents[3] / "docs"


def test_the_example_cluster_is_scheduled_by_the_example_configuration(tmp_path: Path) -> None:
    page = (DOCS / "gpu-sharing.md").read_text()
    cluster, configuration, _ = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "cluster.yaml").write_text(cluster)
    (tmp_path / "config.yaml").write_text(configuration)
    found = simulate(tmp_path / "cluster.yaml", config=tmp_path / "config.yaml")
    assert [(one.pod, one.node) for one in found.placements] == [("default/half", "n1")]


def test_the_example_of_registered_devices(tmp_path: Path) -> None:
    page = (DOCS / "gpu-devices.md").read_text()
    configuration, cluster, *_ = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    (tmp_path / "cluster.yaml").write_text(cluster)
    (tmp_path / "config.yaml").write_text(configuration)
    found = simulate(tmp_path / "cluster.yaml", config=tmp_path / "config.yaml")
    assert [(one.pod, one.node) for one in found.placements] == [("default/quarter", "n1")]
