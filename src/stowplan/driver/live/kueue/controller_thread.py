"""The thread of Kueue's controllers. They call the store synchronously; requests are sent by the
event loop, which goes on with watches and the lease meanwhile."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.requests import ApiRequest
from stowplan.client.responses import ApiResponse, ResponseOutcome, retry_delay_s
from stowplan.controllers.kueue.kueue_kinds import WORKLOADS
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.object_listing import ListedKind, list_objects
from stowplan.driver.client.one_shot_requests import ServerUnreachable
from stowplan.driver.live.kueue.live_controllers import LiveControllers
from stowplan.driver.live.kueue.live_store import LiveStore
from stowplan.driver.live.kueue.object_replica import ObjectReplica
from stowplan.driver.live.kueue.replicated_kinds import KINDS_BY_PATH
from stowplan.driver.logs import log_keys
from stowplan.objects.encoding.tree import Tree

log = logging.getLogger("stowplan.scheduler")

THROTTLED_MAX = 5
"""How often a request is sent again that the server throttles."""
WAIT_MAX_S = 1.0
"""How long the thread waits at most without looking whether it still leads."""

Change = Callable[[LiveStore], None]


class ControllerThread:
    """api: its write check says whether this process leads. ended: called once, from the thread,
    when it ends other than by `stop`."""

    def __init__(
        self,
        api: ApiClient,
        client_config: ClientConfig,
        options: KueueOptions,
        may_act: Callable[[], bool],
        ended: Callable[[BaseException], None],
    ) -> None:
        self.controllers = LiveControllers(options)
        self.store = LiveStore(ObjectReplica(), self._send, self.controllers.changed)
        self.controllers.attach(self.store)
        self._api, self._client_config = api, client_config
        self._may_act, self._ended = may_act, ended
        self._loop = asyncio.get_running_loop()
        self._changes: deque[Change] = deque()
        self._wake = threading.Event()
        self._stop = threading.Event()
        self._is_current = False
        self._thread = threading.Thread(target=self._run, name="kueue", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def put(self, change: Change) -> None:
        """Have the thread take over a change. Called by any thread."""
        self._changes.append(change)
        self._wake.set()

    async def stop(self) -> None:
        """End after the write that is being sent. The event loop goes on until then."""
        self._stop.set()
        self._wake.set()
        await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._wake.clear()
                self._wake.wait(self._work())
        # After any exception nothing is decided any more: the process must stop.
        except Exception as fault:  # noqa: BLE001
            self._ended(fault)

    def _work(self) -> float:
        """Take over changes, and let the controllers work if that is allowed; returns for how many
        seconds to wait."""
        while self._changes:
            self._changes.popleft()(self.store)
        if not self._may_act():
            self._is_current = False
            return WAIT_MAX_S
        if not self._is_current:
            self._is_current = self._read_workloads()
        if not self._is_current or not self.store.read_unsure():
            return WAIT_MAX_S
        at = self.controllers.step(time.time())
        if self.store.is_unsure:
            return 0.0
        return WAIT_MAX_S if at is None else min(max(0.0, at - time.time()), WAIT_MAX_S)

    def _read_workloads(self) -> bool:
        """Read the Workloads as they are stored: those of a leader before this one may be newer
        than what the watch has shown. False if that failed."""
        found = KINDS_BY_PATH[WORKLOADS]
        kind = ListedKind(found.resource.path(), found.resource.api_version, found.kind)
        listing = list_objects(self._api, self._client_config, kind)
        try:
            trees: list[Tree] = asyncio.run_coroutine_threadsafe(listing, self._loop).result().trees
        except ServerUnreachable as problem:
            log_keys(log, logging.WARNING, "Unable to list; retrying", err=str(problem))
            return False
        for tree in trees:
            self.store.observe_tree(WORKLOADS, tree)
        log_keys(log, logging.INFO, "Admitting workloads", workloads=len(trees))
        return True

    def _send(self, request: ApiRequest) -> ApiResponse:
        return asyncio.run_coroutine_threadsafe(self._answer(request), self._loop).result()

    async def _answer(self, request: ApiRequest) -> ApiResponse:
        answer = await self._api.send(request)
        for _ in range(THROTTLED_MAX):
            if answer.verdict is not ResponseOutcome.THROTTLED or self._stop.is_set():
                break
            await asyncio.sleep(retry_delay_s(answer))
            answer = await self._api.send(request)
        return answer
