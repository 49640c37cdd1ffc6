"""Workloads such as the demonstrations of the official example driver of Kubernetes, on simulated
devices of the same driver name: a claim per pod, claims that containers or pods share, parameters.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan import ReplayOptions, simulate

CLUSTER = """
apiVersion: v1
kind: Node
metadata: {name: n1, annotations: {stowplan.dev/devices: "gpu.example.com=4xH100"}}
status: {allocatable: {cpu: "8", memory: 16Gi, pods: "20"}}
---
apiVersion: resource.k8s.io/v1
kind: DeviceClass
metadata: {name: gpu.example.com}
spec: {selectors: [{cel: {expression: device.driver == 'gpu.example.com'}}]}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: single, namespace: default}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: several, namespace: default}
spec:
  spec:
    devices:
      requests:
      - {name: shared, exactly: {deviceClassName: gpu.example.com}}
      - {name: other, exactly: {deviceClassName: gpu.example.com, count: 2}}
      config:
      - requests: [shared]
        opaque:
          driver: gpu.example.com
          parameters: {apiVersion: gpu.resource.example.com/v1alpha1, kind: GpuConfig}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: common, namespace: default}
spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}
"""
POD = """
---
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: default, annotations: {stowplan.dev/run-seconds: "60"}}
spec:
  restartPolicy: Never
  containers: [%s]
  resourceClaims: [%s]
"""


def container(name: str, claim: str, request: str = "") -> str:
    asked = f", request: {request}" if request else ""
    return f"{{name: {name}, image: ubuntu, resources: {{claims: [{{name: {claim}{asked}}}]}}}}"


def of_template(name: str) -> str:
    return f"{{name: gpu, resourceClaimTemplateName: {name}}}"


CASES = {
    "a GPU for each of two pods": [
        (container("c", "gpu"), of_template("single")),
        (container("c", "gpu"), of_template("single")),
    ],
    "two containers share the GPU of their pod": [
        (f"{container('a', 'gpu')}, {container('b', 'gpu')}", of_template("single")),
    ],
    "two pods share a GPU": [
        (container("c", "gpu"), "{name: gpu, resourceClaimName: common}"),
        (container("c", "gpu"), "{name: gpu, resourceClaimName: common}"),
    ],
    "requests of a claim for different containers, with parameters": [
        (f"{container('a', 'gpu', 'shared')}, {container('b', 'gpu', 'other')}",
         of_template("several")),
    ],
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_pods_get_their_devices(tmp_path: Path, case: str) -> None:
    file = tmp_path / "all.yaml"
    pods = "".join(POD % (f"p{i}", *parts) for i, parts in enumerate(CASES[case]))
    file.write_text(CLUSTER + pods)
    result = simulate(file, replay=ReplayOptions())
    assert [one.node for one in result.placements] == ["n1"] * len(CASES[case]), result.summary
