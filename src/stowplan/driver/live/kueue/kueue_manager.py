"""Kueue's admission of a live cluster as a process: watches, lease, controllers, signals."""

from __future__ import annotations

import asyncio
import logging
import signal
from functools import partial

import msgspec
import numpy as np

from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.leader_election import LeaderElectionConfig
from stowplan.client.watch_decoding import RawObjectCache
from stowplan.driver.background_tasks import BackgroundTasks, background_tasks
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.apiserver_readiness import wait_for_apiserver
from stowplan.driver.live.competing_schedulers import CompetingSchedulerError
from stowplan.driver.live.informers import Informers
from stowplan.driver.live.kueue.competing_kueue import refuse_running_kueue
from stowplan.driver.live.kueue.controller_thread import ControllerThread
from stowplan.driver.live.kueue.live_store import LiveStore
from stowplan.driver.live.kueue.replicated_kinds import (
    REPLICATED_KINDS,
    ClusterTree,
    NamespacedTree,
    ReplicatedKind,
)
from stowplan.driver.live.leadership import LeaderElectionThread
from stowplan.driver.logs import log_keys
from stowplan.driver.process import exit_after
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.meta import NamespacedObject, Object

log = logging.getLogger("stowplan.scheduler")

LEASE = "stowplan-kueue"
LOOK_S = 10.0
"""How often it is looked whether Kueue's own manager has been started."""
END_S = 40.0
"""Seconds for which the last write may take."""
_TREES = (NamespacedTree, ClusterTree)


class KueueManagerOptions(msgspec.Struct, frozen=True):
    """election: None to lead without. take_over: run beside Kueue's own manager."""

    client_config: ClientConfig
    election: LeaderElectionConfig | None
    kueue: KueueOptions
    take_over: bool = False


def run_kueue_manager(options: KueueManagerOptions) -> int:
    """Admit until a signal arrives; returns the exit code. Raises CompetingSchedulerError and
    CredentialError."""
    return asyncio.run(_KueueManager(options).run())


class _KueueManager:
    """The process; its methods run in its event loop."""

    def __init__(self, options: KueueManagerOptions) -> None:
        self._options = options
        self._finished = asyncio.Event()
        self._code = 0
        self._informers: list[Informers] = []

    async def run(self) -> int:
        """See `run_kueue_manager`."""
        loop, options = asyncio.get_running_loop(), self._options
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, partial(self._stop_on_signal, number))
        starting = asyncio.create_task(self._check_startup())
        stopping = asyncio.create_task(self._finished.wait())
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return self._code
        stopping.cancel()
        await starting
        rng = np.random.default_rng()
        config = options.client_config

        def end(why: str) -> None:
            """Called by other threads."""
            loop.call_soon_threadsafe(self._end, why)

        election = LeaderElectionThread(config, options.election, rng, _ignore, end)
        async with ApiClient(config, election.may_write) as api, background_tasks() as tasks:
            thread = ControllerThread(
                api,
                config,
                options.kueue,
                lambda: self._is_synced and election.may_write(),
                lambda fault: end(f"controllers failed: {fault!r}"),
            )
            for kind in REPLICATED_KINDS:
                self._watch(api, kind, thread, tasks, rng)
            if not options.take_over:
                tasks.start(self._look_for_kueue(), "look for Kueue's manager")
            election.start()
            thread.start()
            await self._finished.wait()
            # Whatever the thread waits for, the process ends.
            exit_after(END_S, 1)
            await thread.stop()
            await asyncio.to_thread(election.stop)
        return self._code

    async def _check_startup(self) -> None:
        await wait_for_apiserver(self._options.client_config)
        if not self._options.take_over:
            await refuse_running_kueue(self._options.client_config)

    def _watch(
        self,
        api: ApiClient,
        kind: ReplicatedKind,
        thread: ControllerThread,
        tasks: BackgroundTasks,
        rng: np.random.Generator,
    ) -> None:
        whole = RawObjectCache()
        handle = partial(_take_over, kind, whole, thread)
        one = Informers(api, [kind.resource], handle, rng, whole=whole, whole_kinds=_TREES)
        one.start(tasks)
        self._informers.append(one)

    @property
    def _is_synced(self) -> bool:
        return all(one.is_synced for one in self._informers)

    async def _look_for_kueue(self) -> None:
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                await refuse_running_kueue(self._options.client_config)
            except CompetingSchedulerError as problem:
                self._end(str(problem))

    def _stop_on_signal(self, number: int) -> None:
        log_keys(log, logging.INFO, "Stopping on signal", signal=signal.Signals(number).name)
        self._finished.set()

    def _end(self, why: str) -> None:
        """End with an error."""
        if not self._finished.is_set():
            log_keys(log, logging.ERROR, "Stopping", err=why)
            self._code = 1
            self._finished.set()


def _ignore(_term: int) -> None:
    """The controllers look themselves whether this process leads."""


def _take_over(
    kind: ReplicatedKind, whole: RawObjectCache, thread: ControllerThread, events: list[Event]
) -> None:
    """Pass watched changes on. Of an object that has changed again by now the last is taken, which
    is among the events, too."""
    for event in events:
        if isinstance(event, happened.ObjectDeleted):
            meta = event.value.metadata
            place = _namespace(event.value), meta.name, meta.uid, meta.resource_version
            thread.put(partial(_delete, kind.path, place))
        elif isinstance(event, happened.ObjectAdded | happened.ObjectUpdated):
            encoded = whole.encoded(event.value)
            if encoded is not None:
                thread.put(partial(_observe, kind.path, encoded))


def _observe(path: str, encoded: bytes, store: LiveStore) -> None:
    store.observe(path, encoded)


def _delete(path: str, place: tuple[str, str, str, str], store: LiveStore) -> None:
    store.observe_deleted(path, *place)


def _namespace(value: Object) -> str:
    return value.namespace if isinstance(value, NamespacedObject) else ""
