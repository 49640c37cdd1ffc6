"""A cluster in this process: its data directory, client credentials and HTTP server."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from errno import EADDRNOTAVAIL
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stowplan.apis.resource.node_devices import device_class, parse_devices
from stowplan.apiserver.admission import admission_plugins
from stowplan.apiserver.admission.custom_object_checks import checks_of
from stowplan.apiserver.admission.queues.kai_pod_admission import KaiPodAdmission
from stowplan.apiserver.admission.queues.kai_queue_admission import KaiQueueAdmission
from stowplan.apiserver.admission.queues.queued_job_admission import QueuedJobAdmission
from stowplan.apiserver.admission.volcano_admission import VolcanoAdmission
from stowplan.apiserver.auth.escalation_check import EscalationCheck
from stowplan.apiserver.auth.flow_control import RequestLimits, RequestRateLimiter
from stowplan.apiserver.auth.static_tokens import StaticTokens
from stowplan.apiserver.auth.token_rbac import TokenRbacAccess
from stowplan.apiserver.bootstrap_objects import create_bootstrap_objects
from stowplan.apiserver.crd.definition_controller import DefinitionController
from stowplan.apiserver.discovery.default_pages import default_pages
from stowplan.apiserver.discovery.local_api_services import LocalApiServices
from stowplan.apiserver.manifest_loading import LoadResult, load_manifests
from stowplan.apiserver.options import ApiServerOptions
from stowplan.apiserver.resource_registry import built_in_registry
from stowplan.apiserver.storage.record_checks import valid_records
from stowplan.assembly.controller_manager import ControllerManagerOptions
from stowplan.assembly.embedded_cluster import EmbeddedCluster
from stowplan.assembly.usage_metrics import UsageMetricsPages, list_usage_metrics
from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.controllers.job_sets.job_set_kinds import job_set_definitions
from stowplan.controllers.kai.kai_definitions import kai_definitions
from stowplan.controllers.kueue.kueue_kinds import kueue_definitions
from stowplan.controllers.node_lifecycle.node_lifecycle_options import NodeLifecycleOptions
from stowplan.controllers.volcano.volcano_kinds import volcano_definitions
from stowplan.driver.api_field_texts import client_field_texts
from stowplan.driver.background_tasks import BackgroundTasks, background_tasks
from stowplan.driver.client.tls_buffers import limit_tls_buffers
from stowplan.driver.client.webhook_client import call_webhooks
from stowplan.driver.gc_settings import paused_collector
from stowplan.driver.http.http_server import HttpServer, ServerLimits, ServerTls, listening_socket
from stowplan.driver.http.server_loop import ServerLoop
from stowplan.driver.logs import log_keys
from stowplan.driver.loopback import is_loopback
from stowplan.driver.storage.audit_log import AuditLog, AuditLogError
from stowplan.driver.storage.cluster_place import (
    KubeconfigTaken,
    check_kubeconfigs,
    kubeconfig_paths,
)
from stowplan.driver.storage.credentials_files import (
    ADMIN,
    SCHEDULER,
    CredentialFilesError,
    ServingCertificate,
    TokenUsers,
    load_tokens,
    serving_certificate,
)
from stowplan.driver.storage.kubeconfig_files import (
    as_text,
    is_same_file,
    kubeconfig_tree,
    locked_directory,
    write_locked_secret,
)
from stowplan.driver.storage.sqlite_store import SqliteStore, StoreError
from stowplan.framework.feature_gates import FeatureGates
from stowplan.kubelet.hollow_nodes import make_hollow_nodes
from stowplan.objects.encoding.tree import Tree

log = logging.getLogger("stowplan.cluster")


class UpError(Exception):
    """The cluster cannot start or continue; the text is for the user."""


class LocalClusterSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a cluster. data: None keeps it in memory. port: 0 for any free one.

    nodes: number of hollow nodes. devices: those of each of them, see `node_devices`. token_file:
    more clients, in kube-apiserver's form. kubeconfig: where it is written, None: in the data
    directory, or in the working directory. seed: of generated names; None for random ones.
    node_lifecycle: how failed nodes are handled. gates: what the API serves and controllers do:
    scheduling.k8s.io/v1alpha2 with GenericWorkload, DeviceTaintRule of resource.k8s.io/v1beta2 with
    DRADeviceTaintRules. runs_controllers: False leaves them to another controller manager;
    hollow nodes run all the same. audit_log: file of audit events, of `audit_level`.
    watch_cache_mb: memory for past changes, in MiB.
    serves_volcano: with Volcano's kinds and their controllers. serves_kai: with KAI's kinds and
    their controllers. kueue: options of Kueue's admission, with its kinds and controllers; None for
    none.
    """

    data: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    nodes: int = 0
    devices: str = ""
    token_file: Path | None = None
    kubeconfig: Path | None = None
    anonymous: bool = True
    limits: RequestLimits = RequestLimits()
    bounds: ServerLimits = ServerLimits()
    node_lifecycle: NodeLifecycleOptions = NodeLifecycleOptions()
    seed: int | None = None
    gates: FeatureGates = FeatureGates()
    runs_controllers: bool = True
    audit_log: Path | None = None
    audit_level: str = "Metadata"
    watch_cache_mb: int = 192
    serves_volcano: bool = False
    serves_kai: bool = False
    kueue: KueueOptions | None = None

    @property
    def serves_job_sets(self) -> bool:
        """Whether JobSets and jobs of Kubeflow are served: where they are admitted, where KAI's
        pod-grouper has rules for them, or where their Jobs are gangs."""
        return self.kueue is not None or self.serves_kai or self.gates.workload_with_job


class LocalCluster(NamedTuple):
    """A running cluster. url: of its HTTPS side. failed: set when it cannot continue. tasks: its
    background tasks."""

    cluster: EmbeddedCluster
    server_loop: ServerLoop
    url: str
    kubeconfig: Path
    scheduler_kubeconfig: Path
    loading: LoadResult
    failed: asyncio.Future[str]
    tasks: BackgroundTasks


ClusterService = Callable[[LocalCluster], contextlib.AbstractAsyncContextManager[object]]


@contextlib.asynccontextmanager
async def running_local_cluster(
    settings: LocalClusterSettings,
    documents: Sequence[tuple[str, Any]] = (),
    manager_options: ControllerManagerOptions | None = None,
) -> AsyncIterator[LocalCluster]:
    """Start a cluster, and stop it at the end. Raises UpError.

    documents: place and tree of objects to be created; existing ones are kept.
    manager_options: of controllers and kubelets, instead of those of the settings; all run by
    default.
    """
    with contextlib.closing(_listening_sockets(settings)) as listener:
        store: SqliteStore | None = None
        audit: AuditLog | None = None
        try:
            audit = AuditLog(settings.audit_log) if settings.audit_log else None
            store = SqliteStore(settings.data) if settings.data else None
            known = load_tokens(settings.data, settings.token_file)
            keys = serving_certificate(settings.data, settings.host, time.time())
            cluster = _restored_cluster(
                settings,
                listener.getsockname()[1],
                store,
                known,
                manager_options,
                audit,
                keys.certificate,
            )
            loading = _load_objects(cluster, settings, documents)
            failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            server_loop = ServerLoop(cluster, store, partial(_fail, failed))
            url = _url(settings.host, listener)
            with _kubeconfigs(settings, url, keys, known) as paths:
                server = HttpServer(server_loop, settings.bounds)
                tls = ServerTls(keys.context, plain=is_loopback(settings.host))
                async with _serving(server, listener, tls) as tasks:
                    yield LocalCluster(
                        cluster, server_loop, url, paths[0], paths[1], loading, failed, tasks
                    )
        except (StoreError, CredentialFilesError, AuditLogError, KubeconfigTaken) as problem:
            raise UpError(str(problem)) from None
        finally:
            if store is not None:
                _close(store)
            if audit is not None:
                audit.close()


@contextlib.asynccontextmanager
async def _serving(
    server: HttpServer, listener: socket.socket, tls: ServerTls
) -> AsyncIterator[BackgroundTasks]:
    async with background_tasks() as tasks:
        await server.start(listener, tasks, tls)
        try:
            yield tasks
        finally:
            await server.stop()


def _close(store: SqliteStore) -> None:
    """Close a store; if the disk is full by now, no acknowledged write is lost."""
    try:
        store.close()
    except StoreError as problem:
        log_keys(log, logging.WARNING, "Data directory was not closed cleanly", err=str(problem))


def _fail(failed: asyncio.Future[str], why: str) -> None:
    """Set the failure reason; the first one is kept."""
    if not failed.done():
        failed.set_result(why)


def _listening_sockets(settings: LocalClusterSettings) -> socket.socket:
    try:
        return listening_socket(settings.host, settings.port)
    except OSError as problem:
        # The library appends the address in brackets.
        why = (problem.strerror or str(problem)).partition(" (")[0]
        if problem.errno in (EADDRNOTAVAIL, None) or problem.errno < 0:
            # Errors of name resolution have negative numbers.
            raise UpError(f"unable to listen on {settings.host} (--bind): {why}") from None
        raise UpError(
            f"unable to listen on port {settings.port} of {settings.host}: {why}; use another "
            "--port, or 0 for any free one"
        ) from None


def _url(host: str, listener: socket.socket) -> str:
    where = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    address = f"[{where}]" if ":" in where else where
    return f"https://{address}:{listener.getsockname()[1]}"


def _load_objects(
    cluster: EmbeddedCluster, settings: LocalClusterSettings, documents: Sequence[tuple[str, Any]]
) -> LoadResult:
    """Create the bootstrap objects, the hollow nodes, and the given objects."""
    now = time.time()
    create_bootstrap_objects(cluster.server, now)
    nodes = make_hollow_nodes(settings.nodes, devices=settings.devices)
    load_manifests(cluster.server, [("", node) for node in nodes], now)
    load_manifests(cluster.server, [("", one) for one in _definitions(settings)], now)
    loading = load_manifests(cluster.server, documents, now, makes_accounts=True)
    # After the documents, so that a class of theirs is kept.
    classes = [("", device_class(one.driver)) for one in parse_devices(settings.devices)]
    load_manifests(cluster.server, classes, now)
    # A watch from a version before the start is answered with 410, as by kube-apiserver.
    cluster.server.store.compact(cluster.server.version)
    return loading


def _definitions(settings: LocalClusterSettings) -> Iterator[Tree]:
    """Definitions of the kinds of other projects that the cluster serves, and what goes with
    them."""
    if settings.serves_volcano:
        yield from volcano_definitions()
    if settings.serves_kai:
        yield from kai_definitions()
    if settings.kueue is not None:
        yield from kueue_definitions()
    if settings.serves_job_sets:
        yield from job_set_definitions()


def _restored_cluster(
    settings: LocalClusterSettings,
    port: int,
    store: SqliteStore | None,
    known: TokenUsers,
    manager_options: ControllerManagerOptions | None,
    audit: AuditLog | None = None,
    certificate: str = "",
) -> EmbeddedCluster:
    """A cluster with the stored objects. Raises StoreError for unusable records."""
    options = _api_server_options(settings, port, known, audit, is_durable=store is not None)
    seed = secrets.randbits(64) if settings.seed is None else settings.seed
    rng = np.random.default_rng(seed)
    manager_options = manager_options or ControllerManagerOptions(
        controllers=settings.runs_controllers,
        node_lifecycle=settings.node_lifecycle,
        volcano=settings.serves_volcano,
        kai=settings.serves_kai,
        kueue=settings.kueue,
        job_sets=settings.serves_job_sets,
        gates=settings.gates,
        root_certificate=certificate,
    )
    if store is None:
        return EmbeddedCluster(options, rng, (), manager_options)
    try:
        records = valid_records(store.records(), _log_skipped_record)
        cluster = EmbeddedCluster(options, rng, records, manager_options)
        # Notify observers of the stored objects.
        cluster.server.tick(time.time())
    except StoreError:
        raise
    except Exception as fault:  # noqa: BLE001
        # The object is well-formed, but of a form that is never stored here.
        raise store.damaged(f"invalid object: {fault!r}") from None
    return cluster


def _api_server_options(
    settings: LocalClusterSettings,
    port: int,
    known: TokenUsers,
    audit: AuditLog | None,
    *,
    is_durable: bool,
) -> ApiServerOptions:
    access = TokenRbacAccess(
        StaticTokens(known, anonymous=settings.anonymous), RequestRateLimiter(settings.limits)
    )
    registry = built_in_registry(
        workloads=settings.gates.generic_workload,
        device_taint_rules=settings.gates.dra_device_taint_rules,
    )
    list_usage_metrics(registry)
    admission = admission_plugins(accounts=True, taints=False)
    volcano = (VolcanoAdmission(),) if settings.serves_volcano else ()
    kueue = (QueuedJobAdmission(),) if settings.kueue is not None else ()
    definitions = [*_definitions(settings)]
    checks = (checks_of(definitions),) if definitions else ()
    kai = (KaiPodAdmission(), KaiQueueAdmission()) if settings.serves_kai else ()
    return ApiServerOptions(
        registry=registry,
        access=access,
        admission=(*admission, EscalationCheck(), *volcano, *kueue, *kai, *checks),
        pages=(UsageMetricsPages(), *default_pages(f"{settings.host}:{port}", client_field_texts)),
        observers=(access, DefinitionController(), LocalApiServices()),
        durable=is_durable,
        history_bytes_max=settings.watch_cache_mb << 20,
        webhook_caller=call_webhooks,
        audit=None if audit is None else audit.write,
        audit_level=settings.audit_level,
        clock=time.perf_counter,
    )


def _log_skipped_record(key: str, why: str) -> None:
    log_keys(log, logging.ERROR, "Skipped invalid stored object", key=key, err=why)


@contextlib.contextmanager
def _kubeconfigs(
    settings: LocalClusterSettings, url: str, keys: ServingCertificate, known: TokenUsers
) -> Iterator[tuple[Path, Path]]:
    """Write the kubeconfig files of the administrator and the scheduler. Raises UpError.

    Those of a cluster in memory are removed at the end. Files with other content, of another
    running cluster, or changed meanwhile by others, are kept.
    """
    first, second = kubeconfig_paths(settings.data, settings.kubeconfig)
    texts: dict[Path, str] = {}
    for path, user in ((first, ADMIN), (second, SCHEDULER)):
        token = next(token for token, other in known if other.name == user.name)
        texts[path] = as_text(kubeconfig_tree(url, keys.certificate, user.name, token))
    with contextlib.ExitStack() as held:
        try:
            with locked_directory(first.parent):
                files = _written(texts, held)
        except OSError as problem:
            raise UpError(f"unable to write {first}: {problem.strerror}") from None
        try:
            yield first, second
        finally:
            if settings.data is None:
                for path, number in files.items():
                    same = is_same_file(path, number)
                    if same and path.read_text("utf-8", "replace") == texts[path]:
                        path.unlink()


def _written(texts: Mapping[Path, str], held: contextlib.ExitStack) -> dict[Path, int]:
    """Write the files and keep them open until `held` ends. Raises OSError, KubeconfigTaken."""
    check_kubeconfigs(texts)
    files = {}
    for path, text in texts.items():
        files[path] = write_locked_secret(path, text)
        held.callback(os.close, files[path])
    return files


def run(
    settings: LocalClusterSettings,
    documents: Sequence[tuple[str, Any]] = (),
    started: Callable[[LocalCluster], None] = lambda _: None,
    service: ClusterService = contextlib.nullcontext,
) -> None:
    """Run a cluster until SIGINT or SIGTERM. service: runs with it. Raises UpError."""
    limit_tls_buffers()
    with paused_collector() as resume_collector:

        def loaded(cluster: LocalCluster) -> None:
            resume_collector()
            started(cluster)

        asyncio.run(_run_until_stopped(settings, documents, loaded, service))


async def _run_until_stopped(
    settings: LocalClusterSettings,
    documents: Sequence[tuple[str, Any]],
    started: Callable[[LocalCluster], None],
    service: ClusterService,
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with running_local_cluster(settings, documents) as cluster, service(cluster):
        started(cluster)
        waiting = asyncio.ensure_future(stop.wait())
        await asyncio.wait((waiting, cluster.failed), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if cluster.failed.done():
            raise UpError(cluster.failed.result())
