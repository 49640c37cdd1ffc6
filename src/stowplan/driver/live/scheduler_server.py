"""Scheduler server: the scheduler of a real cluster. Watch events go into the scheduler, its
effects are performed, and their outcomes go into it again.

All of this runs in one event loop; only the lease and the status server have a thread of their own.
A `handle` call is kept short, so that requests proceed in between. A session is decided as a whole,
however long that takes, so it runs in another thread; the loop continues meanwhile and does not
touch the scheduler.
"""

from __future__ import annotations

import asyncio
import logging
import platform
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec
import numpy as np

from stowplan.assembly.deciders import Deciders
from stowplan.assembly.watched_kinds import kinds_read
from stowplan.client.api_calls import ApiCalls
from stowplan.client.event_correlator import EventCorrelator
from stowplan.client.kubeconfig import ClientConfig
from stowplan.client.leader_election import LeaderElectionConfig
from stowplan.client.resources import resources_of
from stowplan.client.watch_decoding import RawObjectCache
from stowplan.cycle.engine.kernel_loading import CompiledKernels
from stowplan.driver.background_tasks import BackgroundTasks, background_tasks
from stowplan.driver.client.api_client import ApiClient
from stowplan.driver.client.rate_limiter import RateLimiter
from stowplan.driver.clocks import monotonic_ns, request_time, unix_offset_ns
from stowplan.driver.kernel_warming import GPU_SHARE, start_kernel_warming
from stowplan.driver.live.api_dispatcher import ApiDispatcher
from stowplan.driver.live.decision_comparer import DecisionComparer, ReferenceScheduler
from stowplan.driver.live.decision_log import DecisionLog
from stowplan.driver.live.informers import Informers
from stowplan.driver.live.leadership import LeaderElectionThread
from stowplan.driver.live.metrics_recorder import MetricsRecorder
from stowplan.driver.live.plugin_io import PluginIORunner
from stowplan.driver.logs import log_keys
from stowplan.insight.fairness.fairness_watch import watch_for
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import ConfigurationChanged, Event
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.scheduler import SchedulerOptions
from stowplan.scheduler.outbox import CONFIGURATION

if TYPE_CHECKING:
    from stowplan.driver.client.extender_client import ExtenderClient
    from stowplan.driver.storage.recording_writer import RecordingWriter

log = logging.getLogger("stowplan.scheduler")

EVENTS_MAX = 5000
"""Maximum number of events in one `handle` call."""
QUEUE_HEADS_MIN, QUEUE_HEADS_MAX = 8, 2000
HANDLE_TARGET_NS = 25_000_000
"""Target duration of one `handle` call."""
HANDLE_INTERVAL_NS = 2_000_000
"""Minimum interval between `handle` calls that events trigger."""
HANDLE_MAX_NS = 600 * SECOND
"""A longer `handle` call counts as a stuck loop."""
PENDING_WRITES_MAX = 256
"""With this many pending writes nothing more is decided: decisions would be outdated when their
writes are sent, and nothing is sent while a decision is made."""
HELD_BACK_S = 0.01
"""Seconds between two `handle` calls while nothing is decided: each call has a cost, and the writes
that wait are not done sooner."""
DRAIN_S = 10.0


class SchedulerServerOptions(msgspec.Struct, frozen=True):
    """election_config: None to lead without election. qps, burst: limits of write requests; qps 0:
    no limit. dry_run: write nothing. seed: of random tie-breaks; None takes the first of equal
    nodes. engine: see `scheduler_for`; "auto" loads the kernels at the start. recorder: records the
    scheduler; None for no recording. kernels: compiles them in another process while pods are
    placed without; None to compile them here before the first pod. plugin_files: of the deciders,
    absolute paths, for those who ask what decides."""

    client_config: ClientConfig
    election_config: LeaderElectionConfig | None = None
    qps: float = 0.0
    burst: int = 100
    dry_run: bool = False
    seed: int | None = None
    engine: str = "auto"
    streams: bool = True
    recorder: RecordingWriter | None = None
    kernels: CompiledKernels | None = None
    plugin_files: tuple[str, ...] = ()


def absolute_paths(files: Iterable[str]) -> tuple[str, ...]:
    """Files as another process finds them."""
    return tuple(str(Path(file).resolve()) for file in files)


T = TypeVar("T")
DecisionObserver = Callable[[list[Effect], int, int], None]
"""Called with the effects of a `handle` call, its start and its duration, in nanoseconds."""
LeaseThreadService = Callable[["SchedulerServer"], AbstractAsyncContextManager[object]]


class SchedulerServer:
    """One scheduler process.

    stop_reason: error that stopped it, "" for none. heartbeat_at: last iteration of the loop.
    on_lease_lost: called from another thread when the lease is lost, because this one may be busy.
    on_synced: called when the objects of the cluster have been read, which live long. on_decided:
    called after every `handle` call, before its effects are performed; it must not change them.
    """

    def __init__(
        self,
        deciders: Deciders,
        options: SchedulerServerOptions,
        service: LeaseThreadService | None = None,
    ) -> None:
        """service: runs in the leader election thread. Raises ConfigError,
        ContractError and CredentialError."""
        self.deciders = deciders
        self._changed_deciders: Deciders | None = None
        self.options = options
        self.metrics_recorder = MetricsRecorder()
        self.stop_reason = ""
        self.heartbeat_at = monotonic_ns()
        self._called_at = 0
        rng = np.random.default_rng(options.seed)
        election_rng, informer_rng, tie_break_rng = rng.spawn(3)
        ties = None if options.seed is None else tie_break_rng
        identity = "" if options.election_config is None else options.election_config.identity
        chosen = SchedulerOptions(
            leads=False, identity=identity or "session", unix_offset_ns=unix_offset_ns()
        )
        self.scheduler = deciders.scheduler(
            rng=ties, options=chosen, engine=options.engine, metrics=self.metrics_recorder.counted
        )
        self.metrics_recorder.watch(self.scheduler)
        if options.recorder is not None:
            options.recorder.attach_server(deciders, self.scheduler, options.seed, options.engine)
        self.decision_log = DecisionLog(self.scheduler, self._node_of)
        self.fairness_watch = watch_for(deciders.configuration)
        self.leadership = LeaderElectionThread(
            options.client_config,
            None if options.dry_run else options.election_config,
            election_rng,
            self._elected,
            self._lost,
            None if service is None else lambda: service(self),
        )
        self._rng = informer_rng
        self.on_lease_lost: Callable[[], None] = _ignore
        self.on_synced: Callable[[], None] = _ignore
        self.on_decided: DecisionObserver | None = None
        self._inbox: deque[Event] = deque()
        self._wakeup_at: int | None = None
        self._queue_heads = 200
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake = asyncio.Event()
        self._stopping = asyncio.Event()
        self.informers: Informers | None = None
        self.api_dispatcher: ApiDispatcher | None = None
        self.comparer = (
            DecisionComparer(self.add_event, ReferenceScheduler(deciders))
            if options.dry_run
            else None
        )
        self.plugin_io = PluginIORunner(self.add_event, self.scheduler.plugin_io)
        self._extender_client: ExtenderClient | None = None
        # Held while another thread uses the scheduler.
        self._handle_lock = asyncio.Lock()

    # Called from any thread.

    def stop(self, why: str = "") -> bool:
        """Stop, and release the lease; from any thread. why: error, "" for none. False if it is not
        running."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return False
        loop.call_soon_threadsafe(self._stop, why)
        return True

    def _stop(self, why: str) -> None:
        if not self._stopping.is_set():
            self.stop_reason = why
            self._stopping.set()
            self._awake.set()

    async def call_between_handles(self, look: Callable[[], T], timeout_s: float = 10.0) -> T:
        """Call a function between two `handle` calls, from any thread. Raises TimeoutError."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return look()

        async def looked() -> T:
            async with self._handle_lock:
                return look()

        looking = asyncio.run_coroutine_threadsafe(looked(), loop)
        return await asyncio.wait_for(asyncio.wrap_future(looking), timeout_s)

    def _elected(self, term: int) -> None:
        self._add_event_threadsafe(happened.LeaderElected(term))

    def _lost(self, why: str) -> None:
        log_keys(log, logging.ERROR, "Leader election lost", err=why)
        self.on_lease_lost()
        self.stop(f"leader election lost: {why}")

    def _add_event_threadsafe(self, event: Event) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.add_event, event)

    # The loop.

    def add_event(self, event: Event) -> None:
        """Queue an event; from this event loop only."""
        self._inbox.append(event)
        self._awake.set()

    def change_configuration(self, event: ConfigurationChanged, deciders: Deciders | None) -> None:
        """Send a changed configuration to the scheduler. deciders: of this configuration, None if
        it is invalid; they are `deciders` once the scheduler has applied it."""
        self._changed_deciders = deciders
        self.add_event(event)

    def configuration_refused(self, source: str, why: str) -> None:
        """Log and count that a changed configuration does not apply."""
        keys = {"file": source, "err": why}
        log_keys(log, logging.ERROR, "Unable to apply configuration", **keys)
        self.metrics_recorder.configuration_reloaded(is_applied=False)

    def _configuration_reported(self, report: to_do.Report) -> None:
        """The scheduler has applied or refused a changed configuration."""
        if report.is_fault:
            self.metrics_recorder.configuration_reloaded(is_applied=False)
        elif self._changed_deciders is not None:
            # Of two lanes that the file concerns the first reports it.
            self.deciders, self._changed_deciders = self._changed_deciders, None
            if self.options.recorder is not None:
                self.options.recorder.configuration_changed(self.deciders)
            self.metrics_recorder.configuration_reloaded(is_applied=True)

    def _add_events(self, events: list[Event]) -> None:
        self._inbox.extend(events)
        self._awake.set()

    @property
    def is_synced(self) -> bool:
        """True when the initial lists have been handled."""
        return self.informers is not None and self.informers.synced.is_set()

    async def run(self, start_more: Callable[[BackgroundTasks], None] | None = None) -> int:
        """Schedule until stopped; returns the exit code. start_more: starts further background
        tasks of the process. Raises CredentialError, and what a background task raises."""
        self._loop = asyncio.get_running_loop()
        api = ApiClient(self.options.client_config, write_check=self.leadership.may_write)
        async with api:
            try:
                async with background_tasks() as tasks:
                    if start_more is not None:
                        start_more(tasks)
                    await self._run(api, tasks)
            finally:
                # The lease is released when no write is under way any more.
                await self._end()
        return 1 if self.stop_reason else 0

    async def _run(self, api: ApiClient, tasks: BackgroundTasks) -> None:
        options = self.options
        self.metrics_recorder.api = api
        kinds: tuple[type[Object], ...] = (Node, Pod, *kinds_read(self.deciders))
        extenders = self.deciders.configuration.extenders
        whole = RawObjectCache() if extenders else None
        self.informers = Informers(
            api,
            resources_of(kinds, with_ended=self.deciders.batch is not None),
            self._add_events,
            self._rng,
            streams=options.streams,
            whole=whole,
            may_lag=lambda: self._is_held_back,
        )
        if whole is not None:
            # Imported here: its HTTP library takes long.
            from stowplan.driver.client.extender_client import ExtenderClient

            self._extender_client = ExtenderClient(extenders, whole.full_tree)
        api_calls = ApiCalls(
            EventCorrelator(platform.node(), self.informers.version),
            request_time,
            rng=self._rng,
            has_kai_binder=True,
        )
        limiter = RateLimiter(options.qps, options.burst)
        self.api_dispatcher = ApiDispatcher(
            api, api_calls, self.add_event, self._may_perform, limiter
        )
        names, server = (
            ", ".join(sorted(self.scheduler_names())),
            options.client_config.server,
        )
        log_keys(log, logging.INFO, "Starting scheduler", schedulerName=names, server=server)
        self.plugin_io.start(tasks)
        self.api_dispatcher.start(tasks)
        # Permanent errors occur here, before anything is started.
        await asyncio.to_thread(self.leadership.start)
        self.informers.start(tasks)
        warming = None
        if options.engine == "auto":
            profiles = self.deciders.configuration.profiles.values()
            uses = {use.name for one in profiles for some in one.points.values() for use in some}
            if options.kernels is None or GPU_SHARE in uses:
                warming = start_kernel_warming(cards=GPU_SHARE in uses)
            else:
                await asyncio.to_thread(options.kernels.start)
        await self._follow_until_synced()
        if warming is not None:
            await self._wait_for_kernels(warming)
        await self._decide_until_stopped()
        await self._drain()

    def scheduler_names(self) -> Iterable[str]:
        """The scheduler names that are served."""
        yield from self.deciders.configuration.profiles
        if self.deciders.batch is not None:
            yield from self.deciders.batch.scheduler_names

    def _may_perform(self, effect: Effect) -> bool:
        return self.leadership.may_write(effect.term)

    async def _follow_until_synced(self) -> None:
        """Handle the initial lists before anything is decided."""
        assert self.informers is not None
        begun = monotonic_ns()
        elected: list[Event] = []
        while not self.informers.synced.is_set() and not self._stopping.is_set():
            await self._sleep_until_woken(1.0)
            events = self._take_events()
            elected += [e for e in events if isinstance(e, happened.LeaderElected)]
            self._handle([e for e in events if not isinstance(e, happened.LeaderElected)], 0)
        if self._stopping.is_set():
            return
        while self._inbox:
            events = self._take_events()
            elected += [e for e in events if isinstance(e, happened.LeaderElected)]
            self._handle([e for e in events if not isinstance(e, happened.LeaderElected)], 0)
            await asyncio.sleep(0)
        self.on_synced()
        counts = ", ".join(
            f"{len(one)} {one.resource.title}" for one in self.informers.informers if len(one)
        )
        duration = f"{(monotonic_ns() - begun) / SECOND:.1f}s"
        log_keys(log, logging.INFO, "Informers synced", duration=duration, objects=counts)
        self._inbox.extendleft([*reversed(elected), happened.Synced()])

    async def _wait_for_kernels(self, warming: asyncio.Future[None]) -> None:
        """Wait for the kernels, unless stopped."""
        while not warming.done() and not self._stopping.is_set():
            self.heartbeat_at = monotonic_ns()
            await asyncio.wait({warming}, timeout=0.2)
        if warming.done():
            warming.result()

    async def _decide_until_stopped(self) -> None:
        while not self._stopping.is_set():
            events = self._take_events()
            held_back = self._is_held_back
            if events or self._is_due():
                heads = 0 if held_back else self._queue_heads
                if self._may_run_session():
                    await self._handle_in_thread(events, heads)
                else:
                    self._handle(events, heads)
            elif self.comparer is not None:
                self.comparer.serve_due(monotonic_ns())
            if self.options.kernels is not None:
                self.options.kernels.poll()
            if held_back or self._inbox or self._is_due():
                # Let requests proceed, longer if they lag behind.
                await asyncio.sleep(HELD_BACK_S if held_back else 0)
            else:
                await self._sleep_until_woken(self._sleep_s())
                await self._batch_events()

    @property
    def _is_held_back(self) -> bool:
        """Whether so many writes wait that nothing more is decided."""
        dispatcher = self.api_dispatcher
        return dispatcher is not None and dispatcher.n_waiting > PENDING_WRITES_MAX

    async def _batch_events(self) -> None:
        """After a recent `handle` call wait for more events: each call has a cost."""
        rest = self._called_at + HANDLE_INTERVAL_NS - monotonic_ns()
        if self._inbox and rest > 0:
            await asyncio.sleep(rest / SECOND)

    def _sleep_s(self) -> float:
        if self._wakeup_at is None:
            return 1.0
        return min(1.0, max(0.0, (self._wakeup_at - monotonic_ns()) / SECOND))

    async def _sleep_until_woken(self, seconds: float) -> None:
        self._awake.clear()
        self.heartbeat_at = monotonic_ns()
        if self._inbox or self._stopping.is_set():
            return
        # Without a task, because this runs for every few events.
        alarm = asyncio.get_running_loop().call_later(seconds, self._awake.set)
        try:
            await self._awake.wait()
        finally:
            alarm.cancel()

    def _is_due(self) -> bool:
        return self._wakeup_at is not None and monotonic_ns() >= self._wakeup_at

    def _take_events(self) -> list[Event]:
        inbox = self._inbox
        if len(inbox) <= EVENTS_MAX:
            events = list(inbox)
            inbox.clear()
            return events
        return [inbox.popleft() for _ in range(EVENTS_MAX)]

    def _may_run_session(self) -> bool:
        """True when a `handle` call may run a session."""
        return self.scheduler.lanes.may_run_session(monotonic_ns())

    def _handle(self, events: list[Event], heads: int) -> None:
        begun = self._begin_handle()
        effects = self.scheduler.handle(events, begun, heads)
        took = monotonic_ns() - begun
        if heads and took > HANDLE_TARGET_NS:
            self._queue_heads = max(
                QUEUE_HEADS_MIN, min(self._queue_heads, heads * HANDLE_TARGET_NS // took)
            )
        elif heads and took < HANDLE_TARGET_NS // 2:
            self._queue_heads = min(QUEUE_HEADS_MAX, self._queue_heads * 2)
        self._handled(events, effects, begun, took)

    async def _handle_in_thread(self, events: list[Event], heads: int) -> None:
        """The same in another thread, while requests, watches and timers proceed."""
        async with self._handle_lock:
            begun, held = self._begin_handle(), self.scheduler.lanes.n_sessions
            call = asyncio.create_task(
                asyncio.to_thread(self.scheduler.handle, events, begun, heads)
            )
            while not call.done():
                await asyncio.wait({call}, timeout=1.0)
                if monotonic_ns() - begun < HANDLE_MAX_NS:
                    self.heartbeat_at = monotonic_ns()
            effects, took = call.result(), monotonic_ns() - begun
            self._handled(events, effects, begun, took)
            if self.scheduler.lanes.n_sessions != held:
                if self.comparer is None:
                    self.decision_log.session(held + 1, effects, took)
                # The scheduler does not measure its own duration.
                self._handle([happened.SessionEnded()], 0)

    def _begin_handle(self) -> int:
        """The time of a `handle` call."""
        begun = monotonic_ns()
        self.heartbeat_at = self._called_at = begun
        if self._wakeup_at is not None and begun >= self._wakeup_at:
            self._wakeup_at = None
        return begun

    def _handled(self, events: list[Event], effects: list[Effect], begun: int, took: int) -> None:
        self.metrics_recorder.handled(events, effects, begun, took)
        if self.comparer is not None:
            self.comparer.seen(events, begun)
            # What was decided does not happen.
            self.fairness_watch.handled(events, (), begun)
        else:
            self.decision_log.handled(events, effects, begun)
            self.fairness_watch.handled(events, effects, begun)
        if self.on_decided is not None:
            self.on_decided(effects, begun, took)
        for effect in effects:
            self._perform_effect(effect)

    def _node_of(self, key: str) -> str:
        """Node of a pod, by namespace/name, as the watch shows it; "" for none."""
        informers = self.informers
        pod = None if informers is None else informers.pod(key)
        return "" if pod is None else pod.node_name

    # Effects.

    def _perform_effect(self, effect: Effect) -> None:
        match effect:
            case to_do.Wake():
                # The scheduler sets one wake-up time; a new one replaces it.
                self._wakeup_at = effect.at
            case to_do.Report():
                level = logging.ERROR if effect.is_fault else logging.INFO
                log.log(level, "%s: %s", effect.subject, effect.text)
                if effect.subject == CONFIGURATION:
                    self._configuration_reported(effect)
            case to_do.Cancel():
                self.plugin_io.cancel(effect.prepare)
            case _ if self.comparer is not None and self.comparer.take(effect):
                return
            case to_do.Prepare():
                if self._may_perform(effect):
                    self.plugin_io.prepare(effect)
            case to_do.CallExtender():
                assert self._extender_client is not None
                if self._may_perform(effect):
                    self.plugin_io.begin(effect.effect, self._extender_client.ask(effect))
            case _:
                assert self.api_dispatcher is not None
                self.api_dispatcher.take(effect)

    # Shutdown.

    async def _drain(self) -> None:
        """Finish pending work, and handle its outcomes."""
        if self.stop_reason or self.api_dispatcher is None or not self.leadership.leads:
            return
        pending = self.api_dispatcher.n_pending
        log_keys(log, logging.INFO, "Stopping; waiting for pending writes", writes=pending)
        ends = monotonic_ns() + round(DRAIN_S * SECOND)
        while monotonic_ns() < ends:
            is_settled = await self.api_dispatcher.wait_until_settled(0.1)
            if not self._inbox and is_settled:
                return
            self._handle(self._take_events(), 0)
        pending = self.api_dispatcher.n_pending
        log_keys(log, logging.WARNING, "Stopped before pending writes were done", writes=pending)

    async def _end(self) -> None:
        if self._extender_client is not None:
            await self._extender_client.stop()
        await asyncio.to_thread(self.leadership.stop)


def _ignore() -> None:
    """Callback that does nothing."""
