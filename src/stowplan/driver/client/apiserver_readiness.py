"""Reaching: before anything is begun, whether the cluster answers, and whether it knows us.

Everybody who follows something would find out by himself, and say so a line each.
"""

from __future__ import annotations

import asyncio
import logging

from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import ApiRequest
from stowplan.client.resources import NODES
from stowplan.client.responses import ApiResponse, ResponseOutcome, error_message
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.credentials import CredentialError

log = logging.getLogger("stowplan.informers")

RETRY_MIN_S, RETRY_MAX_S = 0.5, 10.0
TIMEOUT_S = 10.0
EXPECTED_ACCESS = {401: "credentials that it knows", 403: "the right to list nodes"}
_PROBE_REQUEST = ApiRequest("GET", NODES.path(), (("limit", "1"),), timeout_s=TIMEOUT_S)


class AccessDeniedError(CredentialError):
    """The cluster answers, and will not have us: says who, what was got and what was wanted."""


async def wait_for_apiserver(client_config: ClientConfig) -> None:
    """Wait until the cluster answers; what keeps it from that is told once. Raises Unwelcome and
    CredentialError."""
    wait_s, fault = RETRY_MIN_S, ""
    async with ApiClient(client_config) as api:
        while True:
            answer = await api.send(_PROBE_REQUEST)
            if answer.verdict is ResponseOutcome.REFUSED:
                raise AccessDeniedError(_refusal(client_config, answer))
            if answer.is_done:
                return
            if error_message(answer) != fault:
                fault = error_message(answer)
                log.warning("%s: %s; trying again", client_config.server, fault)
            await asyncio.sleep(wait_s)
            wait_s = min(RETRY_MAX_S, wait_s * 2)


def _refusal(client_config: ClientConfig, answer: ApiResponse) -> str:
    wanted = EXPECTED_ACCESS.get(answer.status, "the API server of a cluster")
    where = f"{client_config.source}: {client_config.server}"
    return f"{where}: got {answer.status} ({error_message(answer)}), wanted {wanted}"
