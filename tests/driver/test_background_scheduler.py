"""A scheduler in a thread beside the embedded cluster, in one process."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from stowplan.client.requests import JSON, ApiRequest
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.live.background_scheduler import background_scheduler
from stowplan.driver.local_cluster import LocalClusterSettings, running_local_cluster

pytestmark = pytest.mark.slow


def run(steps: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(steps, 300))


def test_the_embedded_cluster_has_a_scheduler_of_its_own(tmp_path: Path) -> None:
    async def steps() -> None:
        settings = LocalClusterSettings(nodes=3, kubeconfig=tmp_path / "kubeconfig")
        async with running_local_cluster(settings) as cluster:
            companion = background_scheduler(str(cluster.scheduler_kubeconfig))
            companion.start()
            async with ApiClient(load_client_config(str(cluster.kubeconfig))) as api:
                for i in range(5):
                    container = {"name": "c", "image": "x"}
                    body = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"p{i}"}}
                    body |= {"spec": {"containers": [container]}}
                    path = "/api/v1/namespaces/default/pods"
                    request = ApiRequest("POST", path, (), json.dumps(body).encode(), JSON)
                    assert (await api.send(request)).status == 201
                async with asyncio.timeout(240):
                    while True:
                        answer = await api.send(ApiRequest("GET", "/api/v1/pods"))
                        pods = json.loads(answer.body)["items"]
                        if all(pod["spec"].get("nodeName") for pod in pods):
                            break
                        await asyncio.sleep(0.1)
                assert len({pod["spec"]["nodeName"] for pod in pods}) == 3
                await asyncio.to_thread(companion.stop)
                assert companion.fault is None
                path = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/kube-scheduler"
                lease = json.loads((await api.send(ApiRequest("GET", path))).body)
                assert not lease["spec"].get("holderIdentity")

    run(steps())
