"""Manifests with claims are read and validated without a server."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan import InputError, ReplayOptions, read_cluster, simulate

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


PLACED = """
apiVersion: v1
kind: Node
metadata: {name: n1}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: resource.k8s.io/VERSION
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "d.example.com"'}}]}
---
apiVersion: resource.k8s.io/VERSION
kind: ResourceSlice
metadata: {name: s1}
spec:
  driver: d.example.com
  nodeName: n1
  pool: {name: n1, generation: 1, resourceSliceCount: 1}
  devices: [{name: a, DEVICE}, {name: b, DEVICE}]
---
apiVersion: resource.k8s.io/VERSION
kind: ResourceClaim
metadata: {name: c, namespace: default}
spec: {devices: {requests: [REQUEST]}}
---
apiVersion: v1
kind: Pod
metadata: {name: p, namespace: default}
spec:
  resourceClaims: [{name: x, resourceClaimName: c}]
  containers: [{name: c, image: i}]
"""
FIELDS, ASKED = "attributes: {model: {string: x}}", "deviceClassName: gpu"
FORMS = {
    "v1": (FIELDS, f"{{name: r, exactly: {{{ASKED}}}}}"),
    "v1beta2": (FIELDS, f"{{name: r, firstAvailable: [{{name: s, {ASKED}}}]}}"),
    "v1beta1": (f"basic: {{{FIELDS}}}", f"{{name: r, {ASKED}}}"),
}


@pytest.mark.parametrize("replay", [False, True])
@pytest.mark.parametrize("version", FORMS)
def test_a_claim_without_defaults_of_each_version_is_served(
    tmp_path: Path, version: str, replay: bool
) -> None:
    device, request = FORMS[version]
    file = tmp_path / "claims.yaml"
    text = PLACED.replace("VERSION", version).replace("DEVICE", device)
    file.write_text(text.replace("REQUEST", request))
    result = simulate(file, replay=ReplayOptions() if replay else None)
    assert [one.node for one in result.placements] == ["n1"], result.summary


def test_a_request_that_v1beta1_does_not_have_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "claims.yaml"
    text = PLACED.replace("VERSION", "v1beta1").replace("DEVICE", FIELDS)
    file.write_text(text.replace("REQUEST", f"{{name: r, {ASKED}, nope: 1}}"))
    with pytest.raises(InputError, match=r'unknown field "spec.devices.requests\[0\].nope"'):
        read_cluster(file)


@pytest.mark.parametrize("more", ["", ", allocationMode: All, adminAccess: true"])
def test_a_template_is_read(tmp_path: Path, more: str) -> None:
    file = tmp_path / "claims.yaml"
    file.write_text(CLAIM % more)
    assert read_cluster(file) is not None
