"""The scheduler that an embedded cluster comes with, in a thread beside it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import msgspec

from stowplan.assembly.deciders import Deciders, deciders_of
from stowplan.driver.companion import Companion
from stowplan.driver.connecting import connection_to
from stowplan.driver.live import LiveOptions
from stowplan.driver.local_cluster import Running
from stowplan.driver.scheduling import NAME
from stowplan.objects.pod import DEFAULT_SCHEDULER

NAMES = (DEFAULT_SCHEDULER, NAME)
"""Nobody else is there to decide the pods that name no scheduler."""
LOOK_S = 0.5


def deciders_of_both() -> Deciders:
    """The default rules, for pods that name no scheduler and for those that name Stowplan."""
    found = deciders_of(())
    (profile,) = found.configuration.profiles.values()
    profiles = {name: msgspec.structs.replace(profile, scheduler_name=name) for name in NAMES}
    changed = msgspec.structs.replace(found.configuration, profiles=profiles)
    return msgspec.structs.replace(found, configuration=changed)


@contextlib.asynccontextmanager
async def scheduling(cluster: Running) -> AsyncIterator[None]:
    """Schedule the pods of a cluster. Should that end by itself, the cluster fails.

    Rules are walked: compiling them would hold up the server, which shares the process.
    """
    connection = connection_to(str(cluster.kubeconfig))
    companion = Companion(deciders_of_both(), LiveOptions(connection, engine="walk"))
    companion.start()
    watching = asyncio.create_task(_watched(companion, cluster.failed))
    try:
        yield
    finally:
        watching.cancel()
        # Its last requests are answered by this loop.
        await asyncio.to_thread(companion.stop)


async def _watched(companion: Companion, failed: asyncio.Future[str]) -> None:
    while companion.is_running:
        await asyncio.sleep(LOOK_S)
    if not failed.done():
        failed.set_result(f"the scheduler has ended: {companion.fault!r}")
