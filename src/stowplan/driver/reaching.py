"""Reaching: before anything is begun, whether the cluster answers, and whether it knows us.

Everybody who follows something would find out by himself, and say so a line each.
"""

from __future__ import annotations

import asyncio
import logging

from stowplan.client.answers import Answer, Verdict, told
from stowplan.client.kubeconfig import Connection
from stowplan.client.requests import Request
from stowplan.client.resources import NODES
from stowplan.driver.api import ApiClient
from stowplan.driver.client_credentials import CredentialError

log = logging.getLogger("stowplan.informers")

FIRST_S, MOST_S = 0.5, 10.0
TIMEOUT_S = 10.0
WANTED = {401: "credentials that it knows", 403: "the right to list nodes"}
_LOOK = Request("GET", NODES.path(), (("limit", "1"),), timeout_s=TIMEOUT_S)


class Unwelcome(CredentialError):
    """The cluster answers, and will not have us: says who, what was got and what was wanted."""


async def reach(connection: Connection) -> None:
    """Wait until the cluster answers; what keeps it from that is told once. Raises Unwelcome and
    CredentialError."""
    wait_s, fault = FIRST_S, ""
    async with ApiClient(connection) as api:
        while True:
            answer = await api.send(_LOOK)
            if answer.verdict is Verdict.REFUSED:
                raise Unwelcome(_refusal(connection, answer))
            if answer.is_done:
                return
            if told(answer) != fault:
                fault = told(answer)
                log.warning("%s: %s; trying again", connection.server, fault)
            await asyncio.sleep(wait_s)
            wait_s = min(MOST_S, wait_s * 2)


def _refusal(connection: Connection, answer: Answer) -> str:
    wanted = WANTED.get(answer.status, "the API server of a cluster")
    where = f"{connection.source}: {connection.server}"
    return f"{where}: got {answer.status} ({told(answer)}), wanted {wanted}"
