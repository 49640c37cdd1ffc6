"""Waits for the API server before anything else starts, and checks the credentials.

Otherwise each informer would fail and log the same error.
"""

from __future__ import annotations

import asyncio
import logging

import numpy as np

from stowplan.client.backoff import JitteredBackoff
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import ApiRequest
from stowplan.client.resources import NODES
from stowplan.client.responses import ApiResponse, ResponseOutcome, error_message
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.credentials import CredentialError
from stowplan.driver.logs import log_keys

log = logging.getLogger("stowplan.informers")

RETRY_MIN_S, RETRY_MAX_S = 0.5, 10.0
TIMEOUT_S = 10.0
CONNECT_FAILED = "Unable to connect to the API server; retrying"
EXPECTED_ACCESS = {401: "check the credentials", 403: "permission to list nodes is required"}
_PROBE_REQUEST = ApiRequest("GET", NODES.path(), (("limit", "1"),), timeout_s=TIMEOUT_S)


class AccessDeniedError(CredentialError):
    """The API server refuses our credentials or permissions."""


async def wait_for_apiserver(client_config: ClientConfig) -> None:
    """Wait until the API server answers; logs each cause of delay once. Raises AccessDeniedError
    and CredentialError."""
    backoff = JitteredBackoff(np.random.default_rng(), RETRY_MIN_S, RETRY_MAX_S, jitter=0.0)
    fault = ""
    async with ApiClient(client_config) as api:
        while True:
            answer = await api.send(_PROBE_REQUEST)
            if answer.verdict is ResponseOutcome.REFUSED:
                raise AccessDeniedError(_refusal(client_config, answer))
            if answer.is_done:
                return
            if error_message(answer) != fault:
                fault = error_message(answer)
                server = client_config.server
                log_keys(log, logging.WARNING, CONNECT_FAILED, server=server, err=fault)
            await asyncio.sleep(backoff.next_s())


def _refusal(client_config: ClientConfig, answer: ApiResponse) -> str:
    hint = EXPECTED_ACCESS.get(answer.status, "is this a Kubernetes API server?")
    where = f"{client_config.source}: {client_config.server}"
    return f"{where}: refused with status {answer.status} ({error_message(answer)}); {hint}"
