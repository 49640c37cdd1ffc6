"""The scheduler that an embedded cluster comes with, in a thread beside it.

It decides under two names, and holds the lease of each as long as it does. So a scheduler from
outside that has one of them waits, as a second kube-scheduler would, or refuses to begin, as
`stowplan run` does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import platform
import uuid
from collections.abc import AsyncIterator

import msgspec
import numpy as np

from stowplan.assembly.deciders import Deciders, deciders_of
from stowplan.client.election import Terms
from stowplan.client.kubeconfig import Connection
from stowplan.driver.companion import Companion
from stowplan.driver.connecting import connection_to
from stowplan.driver.leadership import Leadership
from stowplan.driver.live import LiveOptions
from stowplan.driver.local_cluster import Running
from stowplan.driver.scheduling import NAME, Written, lease_name, terms_of
from stowplan.objects.pod import DEFAULT_SCHEDULER

log = logging.getLogger("stowplan.scheduler")

NAMES = (DEFAULT_SCHEDULER, NAME)
"""Nobody else is there to decide the pods that name no scheduler."""
LOOK_S = 0.1


def deciders_of_both() -> Deciders:
    """The default rules, for pods that name no scheduler and for those that name Stowplan."""
    found = deciders_of(())
    (profile,) = found.configuration.profiles.values()
    profiles = {name: msgspec.structs.replace(profile, scheduler_name=name) for name in NAMES}
    changed = msgspec.structs.replace(found.configuration, profiles=profiles)
    return msgspec.structs.replace(found, configuration=changed)


def identity_of_up() -> str:
    """A name that no other cluster's scheduler has. It is none of those that `stowplan run` stands
    by for: this one does not go away by itself."""
    return f"{NAME}-up_{platform.node()}_{uuid.uuid4()}"


def terms_of_both(deciders: Deciders, identity: str) -> tuple[Terms, Terms]:
    """The leases of both names."""
    asked = terms_of(deciders, Written())
    assert asked is not None
    first, second = (
        msgspec.structs.replace(asked, name=lease_name(name), identity=identity) for name in NAMES
    )
    return first, second


@contextlib.asynccontextmanager
async def scheduling(cluster: Running) -> AsyncIterator[None]:
    """Schedule the pods of a cluster. Should that end by itself, the cluster fails.

    Rules are walked: compiling them would hold up the server, which shares the process.
    """
    connection = connection_to(str(cluster.kubeconfig))
    keeping = asyncio.create_task(_kept(connection, cluster.failed))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


async def _kept(connection: Connection, failed: asyncio.Future[str]) -> None:
    """Have a scheduler; where it has lost a lease, as the computer slept, another one. That goes by
    the same name, so that it need not wait for the first one's time to be over."""
    identity = identity_of_up()
    while True:
        fault = await _one(connection, identity)
        if fault is not None:
            if not failed.done():
                failed.set_result(f"the scheduler has ended: {fault!r}")
            return


async def _one(connection: Connection, identity: str) -> Exception | None:
    """A scheduler from its beginning to its end; what has ended it, None for a lost lease."""
    deciders = deciders_of_both()
    first, second = terms_of_both(deciders, identity)
    companion = Companion(deciders, LiveOptions(connection, first, engine="walk"))

    def lost(why: str) -> None:
        companion.live.stop(f"leaderelection lost: {why}")

    other = Leadership(connection, second, np.random.default_rng(), _nothing, lost)
    other.start()
    told: set[str] = set()
    try:
        while not other.leads:
            _tell_waiting(second, other, told)
            await asyncio.sleep(LOOK_S)
        companion.start()
        while companion.is_running:
            _tell_waiting(first, companion.live.leadership, told)
            await asyncio.sleep(LOOK_S)
    finally:
        # The last requests are answered by this loop.
        await asyncio.to_thread(companion.stop)
        await asyncio.to_thread(other.stop)
    if companion.fault is None:
        log.warning("%s; another scheduler begins", companion.live.stopped_by)
    return companion.fault


def _tell_waiting(terms: Terms, leadership: Leadership, told: set[str]) -> None:
    """Tell once if somebody else has a lease: pods wait for whoever that is."""
    holder = leadership.leader
    if holder not in ("", terms.identity) and terms.name not in told:
        told.add(terms.name)
        log.warning("lease %s/%s: waiting for %s", terms.namespace, terms.name, holder)


def _nothing(term: int) -> None:
    """It is looked at whether it leads."""
