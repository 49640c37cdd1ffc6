"""Kueue's own manager on a cluster: beside it nothing may be admitted."""

from __future__ import annotations

import json

from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import error_message
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.live.competing_schedulers import (
    CompetingSchedulerError,
    renewing_holder,
)
from stowplan.objects.encoding.tree import Tree

KUEUE_LEASE = "c1f6bfd2.kueue.x-k8s.io"
"""Lease of Kueue's manager, in any namespace."""
_LABELS = "app.kubernetes.io/name=kueue,control-plane=controller-manager"
_LEASES = ApiRequest(
    "GET",
    "/apis/coordination.k8s.io/v1/leases",
    (("fieldSelector", f"metadata.name={KUEUE_LEASE}"),),
)
_DEPLOYMENTS = ApiRequest("GET", "/apis/apps/v1/deployments", (("labelSelector", _LABELS),))
_HINT = "stop it, or use --take-over"


async def refuse_running_kueue(client_config: ClientConfig) -> None:
    """Raise CompetingSchedulerError if Kueue's manager is deployed or renews its lease, or if that
    cannot be found out."""
    async with ApiClient(client_config) as api:
        for one in await _listed(api, _DEPLOYMENTS, "Deployments"):
            if int((one.get("spec") or {}).get("replicas", 1)):
                meta = one["metadata"]
                name = f"{meta['namespace']}/{meta['name']}"
                raise CompetingSchedulerError(f"Kueue's own manager is deployed as {name}; {_HINT}")
        for one in await _listed(api, _LEASES, "Leases"):
            namespace = one["metadata"]["namespace"]
            holder = await renewing_holder(api, namespace, KUEUE_LEASE)
            if holder:
                raise CompetingSchedulerError(
                    f"Kueue's own manager runs: {holder!r} renews lease "
                    f"{namespace}/{KUEUE_LEASE}; {_HINT}"
                )


async def _listed(api: ApiClient, request: ApiRequest, title: str) -> list[Tree]:
    answer = await api.send(request)
    if not answer.is_done:
        what = error_message(answer)
        raise CompetingSchedulerError(
            f"unable to list {title}, so Kueue's own manager may run: {what}; use --take-over if "
            "it does not"
        )
    found: list[Tree] = json.loads(answer.body).get("items") or []
    return found
