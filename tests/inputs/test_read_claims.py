"""Manifests with claims are read and validated without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan import read_cluster

CLAIM = """
apiVersion: v1
kind: Node
metadata: {name: n1}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one}
spec:
  spec:
    devices:
      requests:
      - {name: gpu, exactly: {deviceClassName: gpu%s}}
"""


@pytest.mark.parametrize("more", ["", ", allocationMode: All, adminAccess: true"])
def test_a_template_is_read(tmp_path: Path, more: str) -> None:
    file = tmp_path / "claims.yaml"
    file.write_text(CLAIM % more)
    assert read_cluster(file) is not None
