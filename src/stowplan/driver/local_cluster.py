"""A cluster in this process: its files, its clients' credentials, its face on a port."""

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
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from stowplan.cluster.admission import default_admission
from stowplan.cluster.beginning import begin
from stowplan.cluster.cluster import Cluster
from stowplan.cluster.crd.serving import Definitions
from stowplan.cluster.escalation import NoEscalation
from stowplan.cluster.flow import Flow, Limits
from stowplan.cluster.guard import Guard
from stowplan.cluster.hollow.machines import machines
from stowplan.cluster.life import Living
from stowplan.cluster.loading import Loading, load
from stowplan.cluster.metrics import Metrics
from stowplan.cluster.options import Options
from stowplan.cluster.published import default_pages
from stowplan.cluster.records import checked
from stowplan.cluster.registry import built_in
from stowplan.cluster.tokens import Tokens
from stowplan.cluster.unimplemented import UnimplementedKinds
from stowplan.driver.http_server import Bounds, HttpServer, Tls, open_door
from stowplan.driver.keys import (
    ADMIN,
    SCHEDULER,
    CredentialsError,
    Encryption,
    Known,
    encryption,
    tokens,
)
from stowplan.driver.kubeconfig import (
    as_text,
    is_held,
    is_of_a_cluster,
    is_own,
    kubeconfig,
    locked,
    write_held,
)
from stowplan.driver.pump import Pump
from stowplan.driver.sqlite_store import SqliteStore, StoreError

log = logging.getLogger("stowplan.cluster")

KUBECONFIG = "kubeconfig"
ALONE = "stowplan.kubeconfig"


class UpError(Exception):
    """The cluster cannot be started, or cannot go on; the text is for the user."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """How a cluster is started. data: None keeps it in memory. port: 0 lets the system choose.

    nodes: hollow nodes that it is to have. token_file: more clients, in kube-apiserver's form.
    kubeconfig: where it is written, None: beside the data, or in the working directory. seed: of
    generated names; None takes fresh ones.
    """

    data: Path | None = None
    host: str = "127.0.0.1"
    port: int = 0
    nodes: int = 0
    token_file: Path | None = None
    kubeconfig: Path | None = None
    anonymous: bool = True
    limits: Limits = Limits()
    bounds: Bounds = Bounds()
    seed: int | None = None


class Running(NamedTuple):
    """A cluster that answers. url: of its encrypted side. failed: set when it cannot go on."""

    cluster: Cluster
    pump: Pump
    url: str
    kubeconfig: Path
    scheduler_kubeconfig: Path
    loading: Loading
    failed: asyncio.Future[str]


Beside = Callable[[Running], contextlib.AbstractAsyncContextManager[object]]


def is_loopback(host: str) -> bool:
    """True if only this machine can connect to an address."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


@contextlib.asynccontextmanager
async def running(
    settings: Settings,
    documents: Sequence[tuple[str, Any]] = (),
    living: Living | None = None,
) -> AsyncIterator[Running]:
    """Start a cluster, and stop it at the end. Raises UpError.

    documents: place and tree of objects to be created; those that are there already stay. living:
    what of it is alive; everything, unless told otherwise.
    """
    with contextlib.closing(_door(settings)) as door:
        store: SqliteStore | None = None
        try:
            store = SqliteStore(settings.data) if settings.data else None
            known = tokens(settings.data, settings.token_file)
            keys = encryption(settings.data, settings.host, time.time())
            cluster = _begun(settings, door.getsockname()[1], store, known, living)
            loading = _filled(cluster, settings, documents)
            failed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
            pump = Pump(cluster, store, partial(_fail, failed))
            url = _url(settings.host, door)
            with _kubeconfigs(settings, url, keys, known) as paths:
                server = HttpServer(pump, settings.bounds)
                await server.start(door, Tls(keys.context, plain=is_loopback(settings.host)))
                try:
                    yield Running(cluster, pump, url, paths[0], paths[1], loading, failed)
                finally:
                    await server.stop()
        except (StoreError, CredentialsError) as problem:
            raise UpError(str(problem)) from None
        finally:
            if store is not None:
                _close(store)


def _close(store: SqliteStore) -> None:
    """Close a store; a disk that is full by now takes nothing that was acknowledged."""
    try:
        store.close()
    except StoreError as problem:
        log.warning("The data directory was not closed cleanly: err=%s", problem)


def _fail(failed: asyncio.Future[str], why: str) -> None:
    """The first reason counts."""
    if not failed.done():
        failed.set_result(why)


def _door(settings: Settings) -> socket.socket:
    try:
        return open_door(settings.host, settings.port)
    except OSError as problem:
        # The library repeats the address in brackets.
        why = (problem.strerror or str(problem)).partition(" (")[0]
        if problem.errno in (EADDRNOTAVAIL, None) or problem.errno < 0:
            # Below zero are the numbers of failed look-ups of names.
            raise UpError(f"{settings.host}: {why}; name another with --bind") from None
        raise UpError(
            f"port {settings.port} of {settings.host}: {why}; name another with --port, or 0 for "
            "any that is free"
        ) from None


def _url(host: str, door: socket.socket) -> str:
    where = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    shown = f"[{where}]" if ":" in where else where
    return f"https://{shown}:{door.getsockname()[1]}"


def _filled(cluster: Cluster, settings: Settings, documents: Sequence[tuple[str, Any]]) -> Loading:
    """Put in what every cluster has, the hollow nodes, and what was asked for."""
    now = time.time()
    begin(cluster.server, now)
    load(cluster.server, [("", node) for node in machines(settings.nodes)], now)
    loading = load(cluster.server, documents, now)
    # A watch from a version before the start is told that it is too old, as elsewhere.
    cluster.server.store.compact(cluster.server.version)
    return loading


def _begun(
    settings: Settings,
    port: int,
    store: SqliteStore | None,
    known: Known,
    living: Living | None,
) -> Cluster:
    """A cluster with what was kept. Raises StoreError for records that it cannot begin with."""
    if store is None:
        return _cluster(settings, port, None, known, living)
    try:
        cluster = _cluster(settings, port, store, known, living)
        # Observers are told of what was kept.
        cluster.server.tick(time.time())
    except StoreError:
        raise
    except Exception as fault:  # noqa: BLE001
        # It is an object, but of a form that was never stored here.
        raise store.damaged(f"an object that cannot be understood: {fault!r}") from None
    return cluster


def _cluster(
    settings: Settings,
    port: int,
    store: SqliteStore | None,
    known: Known,
    living: Living | None,
) -> Cluster:
    guard = Guard(Tokens(known, anonymous=settings.anonymous), Flow(settings.limits))
    address = f"{settings.host}:{port}"
    seed = secrets.randbits(64) if settings.seed is None else settings.seed
    options = Options(
        registry=built_in(),
        access=guard,
        admission=(*default_admission(), UnimplementedKinds(), NoEscalation()),
        pages=(Metrics(), *default_pages(address)),
        observers=(guard, Definitions()),
        durable=store is not None,
    )
    records = checked(store.records(), _set_aside) if store else ()
    return Cluster(options, np.random.default_rng(seed), records, living)


def _set_aside(key: str, why: str) -> None:
    log.error("Stored object set aside, it is no object: key=%s err=%s", key, why)


@contextlib.contextmanager
def _kubeconfigs(
    settings: Settings, url: str, keys: Encryption, known: Known
) -> Iterator[tuple[Path, Path]]:
    """The files of the administrator and of the scheduler, written. Raises UpError.

    Those of a cluster in memory are removed at the end: they lead to what is gone. Files that
    hold anything else are left alone, and so are those of another cluster that runs, and those
    that somebody has changed meanwhile.
    """
    first = settings.kubeconfig or (settings.data / KUBECONFIG if settings.data else Path(ALONE))
    second = first.with_name(f"scheduler.{first.name}")
    texts: dict[Path, str] = {}
    for path, user in ((first, ADMIN), (second, SCHEDULER)):
        token = next(token for token, other in known if other.name == user.name)
        texts[path] = as_text(kubeconfig(url, keys.certificate, user.name, token))
    with contextlib.ExitStack() as held:
        try:
            with locked(first.parent):
                files = _written(texts, held)
        except OSError as problem:
            raise UpError(f"{first}: cannot be written: {problem.strerror}") from None
        try:
            yield first, second
        finally:
            if settings.data is None:
                for path, number in files.items():
                    same = is_own(path, number)
                    if same and path.read_text("utf-8", "replace") == texts[path]:
                        path.unlink()


def _written(texts: Mapping[Path, str], held: contextlib.ExitStack) -> dict[Path, int]:
    """The files, written and open until `held` ends. Raises OSError and UpError."""
    for path in texts:
        if not path.exists():
            continue
        if not is_of_a_cluster(path.read_text("utf-8", "replace")):
            raise UpError(
                f"{path}: got a file of somebody else's, wanted a new one; name another "
                "with --kubeconfig"
            )
        if is_held(path):
            raise UpError(
                f"{path}: in use by another `stowplan up`; name another with --kubeconfig, or "
                "start in another directory"
            )
    files = {}
    for path, text in texts.items():
        files[path] = write_held(path, text)
        held.callback(os.close, files[path])
    return files


def run(
    settings: Settings,
    documents: Sequence[tuple[str, Any]] = (),
    started: Callable[[Running], None] = lambda _: None,
    beside: Beside = contextlib.nullcontext,
) -> None:
    """Run a cluster until it is told to stop by SIGINT or SIGTERM. beside: what runs with it.
    Raises UpError."""
    asyncio.run(_until_told(settings, documents, started, beside))


async def _until_told(
    settings: Settings,
    documents: Sequence[tuple[str, Any]],
    started: Callable[[Running], None],
    beside: Beside,
) -> None:
    told = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, told.set)
    async with running(settings, documents) as cluster, beside(cluster):
        started(cluster)
        waiting = asyncio.ensure_future(told.wait())
        await asyncio.wait((waiting, cluster.failed), return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if cluster.failed.done():
            raise UpError(cluster.failed.result())
