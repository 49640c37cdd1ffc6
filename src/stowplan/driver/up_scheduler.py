"""The scheduler that an embedded cluster comes with, in a thread beside it.

Without a configuration it decides under two names, and holds the lease of each name as long as it
does. So a scheduler from outside that has one of them waits, as a second kube-scheduler would, or
refuses to begin, as `stowplan run` does. It serves its status on a port of its own, which a
ConfigMap of the cluster names.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import platform
import uuid
from collections.abc import AsyncIterator, Sequence

import msgspec
import numpy as np

from stowplan.assembly.deciders import Deciders
from stowplan.client.election import Terms
from stowplan.client.kubeconfig import Connection
from stowplan.driver.companion import Companion
from stowplan.driver.connecting import connection_to
from stowplan.driver.leadership import Leadership
from stowplan.driver.live import Live, LiveOptions
from stowplan.driver.local_cluster import Beside, Running
from stowplan.driver.scheduling import (
    NAME,
    Written,
    lease_name,
    read_files,
    scheduler_names,
    terms_of,
)
from stowplan.driver.serving import Address, Serving
from stowplan.driver.status_address import publish
from stowplan.objects.pod import DEFAULT_SCHEDULER

log = logging.getLogger("stowplan.scheduler")

NAMES = (DEFAULT_SCHEDULER, NAME)
"""Nobody else is there to decide the pods that name no scheduler."""
LOOK_S = 0.1
LOOPBACK = "127.0.0.1"


def deciders_of_up(config_files: Sequence[str] = (), plugin_files: Sequence[str] = ()) -> Deciders:
    """What the files come to; without a configuration the default profile under both names, for
    pods that name no scheduler and for those that name Stowplan. Raises FileError, ConfigError and
    ContractError."""
    found, _ = read_files(config_files, plugin_files)
    if config_files:
        return found
    (profile,) = found.configuration.profiles.values()
    profiles = {name: msgspec.structs.replace(profile, scheduler_name=name) for name in NAMES}
    changed = msgspec.structs.replace(found.configuration, profiles=profiles)
    return msgspec.structs.replace(found, configuration=changed)


def identity_of_up() -> str:
    """A name that no other cluster's scheduler has. It is none of those that `stowplan run` stands
    by for: this one does not go away by itself."""
    return f"{NAME}-up_{platform.node()}_{uuid.uuid4()}"


def terms_of_all(deciders: Deciders, identity: str) -> list[Terms]:
    """The leases of all names; none where the configuration asks for no election."""
    asked = terms_of(deciders, Written())
    if asked is None:
        return []
    leases = dict.fromkeys(lease_name(name) for name in scheduler_names(deciders))
    return [msgspec.structs.replace(asked, name=name, identity=identity) for name in leases]


@contextlib.asynccontextmanager
async def scheduling(cluster: Running, deciders: Deciders | None = None) -> AsyncIterator[None]:
    """Schedule the pods of a cluster. Should that end by itself, the cluster fails. deciders: what
    decides, None for what `deciders_of_up` says without any file.

    Rules are walked: compiling them would hold up the server, which shares the process.
    """
    connection = connection_to(str(cluster.kubeconfig))
    chosen = deciders or deciders_of_up()
    keeping = asyncio.create_task(_kept(connection, chosen, cluster.failed))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)


def scheduling_by(deciders: Deciders) -> Beside:
    """Schedule the pods of a cluster by these."""
    return lambda cluster: scheduling(cluster, deciders)


async def _kept(connection: Connection, deciders: Deciders, failed: asyncio.Future[str]) -> None:
    """Have a scheduler; where it has lost a lease, as the computer slept, another one. That goes by
    the same name, so that it need not wait for the first one's time to be over."""
    identity = identity_of_up()
    while True:
        fault = await _one(connection, deciders, identity)
        if fault is not None:
            if not failed.done():
                failed.set_result(f"the scheduler has ended: {fault!r}")
            return


async def _one(connection: Connection, deciders: Deciders, identity: str) -> Exception | None:
    """A scheduler from its beginning to its end; what has ended it, None for a lost lease."""
    leases = terms_of_all(deciders, identity)
    first = leases[0] if leases else None
    ports: list[int] = []

    @contextlib.asynccontextmanager
    async def served(live: Live) -> AsyncIterator[None]:
        async with Serving(live, Address(LOOPBACK, 0)) as serving:
            ports.append(serving.port)
            yield

    companion = Companion(deciders, LiveOptions(connection, first, engine="walk"), served)

    def lost(why: str) -> None:
        companion.live.stop(f"leaderelection lost: {why}")

    others = [
        Leadership(connection, terms, np.random.default_rng(), _nothing, lost)
        for terms in leases[1:]
    ]
    for other in others:
        other.start()
    told: set[str] = set()
    try:
        while not all(other.leads for other in others):
            for terms, other in zip(leases[1:], others, strict=True):
                _tell_waiting(terms, other, told)
            await asyncio.sleep(LOOK_S)
        companion.start()
        published = False
        while companion.is_running:
            if first is not None:
                _tell_waiting(first, companion.live.leadership, told)
            if ports and not published:
                published = True
                await publish(connection, f"{LOOPBACK}:{ports[0]}")
            await asyncio.sleep(LOOK_S)
    finally:
        # The last requests are answered by this loop.
        await asyncio.to_thread(companion.stop)
        for other in others:
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
