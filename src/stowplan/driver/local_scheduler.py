"""The scheduler of an embedded cluster, in a thread of the same process.

Without configuration it serves two scheduler names and holds the lease of each while it runs. So an
external scheduler of one of these names waits, as a second kube-scheduler would, or refuses to
start, as `stowplan run` does. It serves its status on a port of its own, which a ConfigMap of the
cluster names.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import platform
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from stowplan.assembly.deciders import Deciders
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.leader_election import LeaderElectionConfig
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import decode_body
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.kubeconfig_loading import load_client_config
from stowplan.driver.gc_settings import freeze_long_lived_objects
from stowplan.driver.http.listen_address import ListenAddress
from stowplan.driver.http.status_server import StatusServer
from stowplan.driver.live.background_scheduler import BackgroundScheduler
from stowplan.driver.live.configuration_files import (
    SCHEDULER_NAME,
    FileSettings,
    leader_election_config,
    lease_name,
    read_configuration_files,
    scheduler_names,
)
from stowplan.driver.live.leadership import LeaderElectionThread
from stowplan.driver.live.scheduler_server import (
    SchedulerServer,
    SchedulerServerOptions,
    absolute_paths,
)
from stowplan.driver.local_cluster import ClusterService, LocalCluster
from stowplan.driver.logs import log_keys
from stowplan.driver.status_address import publish_status_address
from stowplan.driver.storage.recording_writer import RecordingWriter
from stowplan.framework.feature_gates import FeatureGates
from stowplan.objects.pod import DEFAULT_SCHEDULER
from stowplan.objects.workload import Namespace

log = logging.getLogger("stowplan.scheduler")

NAMES = (DEFAULT_SCHEDULER, SCHEDULER_NAME)
"""No other scheduler serves pods without a schedulerName here."""
LOOK_S = 0.1
LOOPBACK = "127.0.0.1"


def local_deciders(
    config_files: Sequence[str] = (),
    plugin_files: Sequence[str] = (),
    compat: Sequence[str] = (),
    gates: FeatureGates | None = None,
) -> Deciders:
    """Read the files; without any the default profile under both names: for pods without a
    schedulerName, and for pods of Stowplan. Raises ConfigurationFileError, ConfigError and
    ContractError."""
    found, _ = read_configuration_files(
        config_files, plugin_files, compat, gates=gates, admits=True
    )
    if found.files:
        return found
    (profile,) = found.configuration.profiles.values()
    profiles = {name: msgspec.structs.replace(profile, scheduler_name=name) for name in NAMES}
    changed = msgspec.structs.replace(found.configuration, profiles=profiles)
    return msgspec.structs.replace(found, configuration=changed)


async def local_lease_identity(client_config: ClientConfig) -> str:
    """The lease identity of a cluster, unlike those that `stowplan run` waits for.

    Only one process has the data of a cluster, so it need not wait for the leases of the one
    before, which may have been killed: the identity is the same.
    """
    request = ApiRequest("GET", "/api/v1/namespaces/kube-system")
    async with ApiClient(client_config) as api:
        answer = await api.send(request)
    found = decode_body(answer.body, Namespace) if answer.is_done else None
    uid = uuid.uuid4() if found is None else found.metadata.uid
    return f"{SCHEDULER_NAME}-up_{platform.node()}_{uid}"


def leader_election_configs(deciders: Deciders, identity: str) -> list[LeaderElectionConfig]:
    """Leader election settings of all names; none if it is disabled."""
    asked = leader_election_config(deciders, FileSettings())
    if asked is None:
        return []
    leases = dict.fromkeys(lease_name(name) for name in scheduler_names(deciders))
    return [msgspec.structs.replace(asked, name=name, identity=identity) for name in leases]


@contextlib.asynccontextmanager
async def local_scheduler(
    cluster: LocalCluster,
    deciders: Deciders | None = None,
    on_synced: Callable[[], None] | None = None,
    recorder: RecordingWriter | None = None,
    on_server: Callable[[SchedulerServer], None] | None = None,
    plugin_files: Sequence[str] = (),
) -> AsyncIterator[None]:
    """Schedule the pods of a cluster; if the scheduler fails, so does the cluster. deciders: None
    for `local_deciders` without files. on_synced: see `SchedulerServer`; from another thread.
    recorder, plugin_files: see `SchedulerServerOptions`. on_server: called with each scheduler
    server before it runs.

    Decides without kernels: compiling them would block the server, which shares the process.
    """
    client_config = load_client_config(str(cluster.kubeconfig))
    chosen = deciders or local_deciders()
    options = SchedulerServerOptions(
        client_config,
        engine="walk",
        recorder=recorder,
        plugin_files=absolute_paths(plugin_files),
    )
    hooks = ServerHooks(on_synced or _ignore, on_server or _ignore)
    work = _restarting_scheduler(options, chosen, hooks, cluster.failed)
    scheduling = cluster.tasks.start_independent(work, "scheduler")
    try:
        yield
    finally:
        # Before the server that it asks.
        scheduling.cancel()
        await asyncio.wait({scheduling})


def local_scheduler_service(
    deciders: Deciders,
    recorder: RecordingWriter | None = None,
    on_server: Callable[[SchedulerServer], None] | None = None,
    plugin_files: Sequence[str] = (),
) -> ClusterService:
    """Schedule the pods of the cluster that is all of this process, with these deciders."""
    return lambda cluster: local_scheduler(
        cluster, deciders, freeze_long_lived_objects, recorder, on_server, plugin_files
    )


class ServerHooks(NamedTuple):
    """What is called of each scheduler server: on_synced of `SchedulerServer`, on_server before it
    runs."""

    on_synced: Callable[[], None]
    on_server: Callable[[SchedulerServer], None]


async def _restarting_scheduler(
    options: SchedulerServerOptions,
    deciders: Deciders,
    hooks: ServerHooks,
    failed: asyncio.Future[str],
) -> None:
    """Run a scheduler, and replace it when it loses a lease (after system sleep). The identity
    stays the same, so that the new one need not wait for the lease to expire. Whatever else ends
    it fails the cluster."""
    identity = await local_lease_identity(options.client_config)
    try:
        while True:
            deciders = await _run_scheduler(options, deciders, identity, hooks)
    except Exception as fault:
        if not failed.done():
            failed.set_result(f"the scheduler failed: {fault!r}")
        raise


async def _run_scheduler(
    options: SchedulerServerOptions,
    deciders: Deciders,
    identity: str,
    hooks: ServerHooks,
) -> Deciders:
    """Run a scheduler until it loses a lease; returns its deciders, which a changed configuration
    may have replaced. Raises any other exception that ends it."""
    client_config = options.client_config
    leases = leader_election_configs(deciders, identity)
    first = leases[0] if leases else None
    ports: list[int] = []

    @contextlib.asynccontextmanager
    async def served(server: SchedulerServer) -> AsyncIterator[None]:
        async with StatusServer(server, ListenAddress(LOOPBACK, 0)) as serving:
            ports.append(serving.port)
            yield

    elected = msgspec.structs.replace(options, election_config=first)
    background_scheduler = BackgroundScheduler(deciders, elected, served)
    background_scheduler.server.on_synced = hooks.on_synced
    hooks.on_server(background_scheduler.server)

    def lost(why: str) -> None:
        background_scheduler.server.stop(f"leader election lost: {why}")

    others = [
        LeaderElectionThread(client_config, election_config, np.random.default_rng(), _ignore, lost)
        for election_config in leases[1:]
    ]
    for other in others:
        other.start()
    logged: set[str] = set()
    try:
        while not all(other.leads for other in others):
            for election_config, other in zip(leases[1:], others, strict=True):
                _log_foreign_leases(election_config, other, logged)
            await asyncio.sleep(LOOK_S)
        background_scheduler.start()
        published = False
        while background_scheduler.is_running:
            if first is not None:
                _log_foreign_leases(first, background_scheduler.server.leadership, logged)
            if ports and not published:
                published = True
                await publish_status_address(client_config, f"{LOOPBACK}:{ports[0]}")
            await asyncio.sleep(LOOK_S)
    finally:
        # This loop answers the scheduler's last requests.
        await asyncio.to_thread(background_scheduler.stop)
        for other in others:
            await asyncio.to_thread(other.stop)
    if background_scheduler.fault is not None:
        raise background_scheduler.fault
    reason = background_scheduler.server.stop_reason
    log_keys(log, logging.WARNING, "Restarting scheduler", err=reason)
    return background_scheduler.server.deciders


def _log_foreign_leases(
    election_config: LeaderElectionConfig, leadership: LeaderElectionThread, logged: set[str]
) -> None:
    """Log once that another scheduler holds a lease."""
    holder = leadership.leader
    if holder not in ("", election_config.identity) and election_config.name not in logged:
        logged.add(election_config.name)
        lease = f"{election_config.namespace}/{election_config.name}"
        log_keys(
            log, logging.WARNING, "Lease is held by another scheduler", lease=lease, holder=holder
        )


def _ignore(*_: object) -> None:
    """Callback that does nothing: leadership is polled."""
