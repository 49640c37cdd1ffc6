"""Manifests with claims are read and validated without a server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from stowplan import InputError, ReplayOptions, capacity, read_cluster, simulate
from stowplan.objects.devices.device_claim import ResourceClaim
from tests.cli.run import run

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


TEMPLATED = """
apiVersion: v1
kind: Node
metadata: {name: n1, annotations: {stowplan.dev/devices: DEVICES}}
status: {allocatable: {cpu: "4", memory: 8Gi, pods: "10"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu}
spec: {selectors: [{cel: {expression: 'device.driver == "gpu.example.com"'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: one, namespace: default}
spec:
  metadata: {labels: {team: x}}
  spec: {devices: {requests: [{name: r, exactly: {deviceClassName: gpu}}]}}
"""
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: default}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      resourceClaims: [{name: gpu, resourceClaimTemplateName: one}]
      containers: [{name: c, image: i, resources: {claims: [{name: gpu}]}}]
"""


def templated(folder: Path, devices: str = "gpu.example.com=2xH100") -> tuple[Path, Path]:
    """A file with a node and a template, and one with a Deployment of it."""
    cluster, workload = folder / "cluster.yaml", folder / "web.yaml"
    cluster.write_text(TEMPLATED.replace("DEVICES", devices))
    workload.write_text(DEPLOYMENT)
    return cluster, workload


def test_pods_of_files_get_claims_from_templates(tmp_path: Path) -> None:
    """They stayed pending: ResourceClaim not created yet."""
    files = templated(tmp_path)
    cluster = read_cluster(files)
    claims = [one for one in cluster.objects if isinstance(one, ResourceClaim)]
    assert [(one.name, one.labels) for one in claims] == [
        (f"web-{n}-gpu", {"team": "x"}) for n in range(3)
    ]
    assert [one.controller.name for one in claims if one.controller] == ["web-0", "web-1", "web-2"]
    assert [one.node for one in simulate(files).placements] == ["n1", "n1", ""]


def test_claims_are_copied_with_the_pods_whose_number_is_looked_for(tmp_path: Path) -> None:
    cluster, workload = templated(tmp_path, "gpu.example.com=5xH100")
    (found,) = capacity(workload, cluster).units
    assert (found.count, list(found.reasons)) == (5, ["cannot allocate all claims"])


def test_claims_of_files_live_on_under_controllers(tmp_path: Path) -> None:
    files = [str(one) for one in templated(tmp_path)]
    given = ["what-if", *files, "--delete", "pod/web-0", "--for", "1m", "-o", "json"]
    found = run(*given)
    assert found.code in (0, 1), found.err
    effects = {one["pod"]: one["effect"] for one in json.loads(found.out)["pods"]}
    assert effects == {"default/web-0": "deleted", "default/web-2": "placed"}


def test_devices_of_a_node_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    files = templated(tmp_path, "gpu.example.com=H100")
    with pytest.raises(InputError, match=r"Node n1: metadata.annotations\[stowplan.dev/devices\]"):
        read_cluster(files)
