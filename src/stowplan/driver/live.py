"""Live: a scheduler of a real cluster. What the watch says goes into the machine, what the machine
decides is carried out, what came of that goes into the machine.

All of it happens in one event loop; only the lease, and what people ask about the scheduler, have a
thread of their own. One call of the machine is kept short, so that requests go on in between. A
session is decided whole, however long that takes, so such a call is made in another thread: the
loop goes on meanwhile, and leaves the machine alone.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import platform
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import Any, TypeVar

import msgspec
import numpy as np

from stowplan.assembly.deciders import Deciders
from stowplan.assembly.reading import kinds_read
from stowplan.client.backoff import SECOND
from stowplan.client.decoding import Whole
from stowplan.client.election import Terms
from stowplan.client.kubeconfig import Connection
from stowplan.client.performing import Performer
from stowplan.client.resources import resources_of
from stowplan.client.series import Series
from stowplan.driver.api import ApiClient
from stowplan.driver.calling import Calling
from stowplan.driver.clocks import moment, steady
from stowplan.driver.decision_log import DecisionLog
from stowplan.driver.following import Following
from stowplan.driver.hands import Hands
from stowplan.driver.leadership import Leadership
from stowplan.driver.limits import Limiter
from stowplan.driver.logs import log_keys
from stowplan.driver.measures import Measures
from stowplan.driver.outside import Outside
from stowplan.driver.shadow import Judge, Shadow
from stowplan.driver.warming import beginning_to_warm
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.objects.extender import spelt
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.scheduler import MachineOptions

log = logging.getLogger("stowplan.scheduler")

EVENTS_MAX = 5000
"""So many events go into one call of the machine at most."""
HEADS_MIN, HEADS_MAX = 8, 2000
CALL_NS = 25_000_000
"""How long one call of the machine is meant to take."""
CALLS_APART_NS = 2_000_000
"""How far apart calls are that begin because something has happened."""
CALL_MAX_NS = 600 * SECOND
"""With a call that takes longer the loop counts as stuck."""
WAITING_MAX = 1000
"""With so many writes waiting nothing more is decided: it would be out of date when its turn comes.
"""
DRAIN_S = 10.0
_NOW = 0.002


class LiveOptions(msgspec.Struct, frozen=True):
    """terms: of the election, None to lead without one. qps, burst: of requests that write; qps 0:
    as many as the server takes. dry_run: nothing is written. seed: draws among equal nodes begin
    here; None takes the first. engine: see `machine_for`; "auto" loads the kernels beforehand."""

    connection: Connection
    terms: Terms | None = None
    qps: float = 0.0
    burst: int = 100
    dry_run: bool = False
    seed: int | None = None
    engine: str = "auto"
    streams: bool = True


T = TypeVar("T")
Beside = Callable[["Live"], AbstractAsyncContextManager[object]]


class Live:
    """One scheduler process.

    stopped_by: why it ended, "" for a wish. beat_at: when the loop last went round. when_lost:
    called from another thread when the lease is lost, as this one may be busy.
    """

    def __init__(
        self, deciders: Deciders, options: LiveOptions, beside: Beside | None = None
    ) -> None:
        """beside: what is served from the thread of the lease. Raises ConfigError, ContractError
        and CredentialError."""
        self.deciders = deciders
        self.options = options
        self.measures = Measures()
        self.stopped_by = ""
        self.beat_at = steady()
        self._called_at = 0
        dice = np.random.default_rng(options.seed)
        election_dice, informer_dice, tie_dice = dice.spawn(3)
        ties = None if options.seed is None else tie_dice
        identity = "" if options.terms is None else options.terms.identity
        chosen = MachineOptions(leads=False, identity=identity or "session")
        self.machine = deciders.machine(
            dice=ties, options=chosen, engine=options.engine, metrics=self.measures.counted
        )
        self.measures.watch(self.machine)
        self.decision_log = DecisionLog(self.machine, self._node_of)
        self.leadership = Leadership(
            options.connection,
            None if options.dry_run else options.terms,
            election_dice,
            self._elected,
            self._lost,
            None if beside is None else lambda: beside(self),
        )
        self._dice = informer_dice
        self.when_lost: Callable[[], None] = _nothing
        self._inbox: deque[Event] = deque()
        self._alarm: int | None = None
        self._heads = 200
        self._loop: asyncio.AbstractEventLoop | None = None
        self._awake = asyncio.Event()
        self._stopping = asyncio.Event()
        self.following: Following | None = None
        self.hands: Hands | None = None
        self.shadow = Shadow(self.tell, Judge(deciders)) if options.dry_run else None
        self.outside = Outside(self.tell, self.machine.work)
        self._calling: Calling | None = None
        self._tasks: list[asyncio.Task[Any]] = []
        # Held by whoever uses the machine while the loop goes on.
        self._turn = asyncio.Lock()

    # From anywhere.

    def stop(self, why: str = "") -> bool:
        """End, and give the lease back; from any thread. why: what went wrong, "" for a wish. False
        where nothing runs that could end."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return False
        loop.call_soon_threadsafe(self._stop, why)
        return True

    def _stop(self, why: str) -> None:
        if not self._stopping.is_set():
            self.stopped_by = why
            self._stopping.set()
            self._awake.set()

    async def in_turn(self, look: Callable[[], T], timeout_s: float = 10.0) -> T:
        """What somebody, in this thread or another, wants to look at, looked at between calls of
        the machine. Raises TimeoutError."""
        loop = self._loop
        if loop is None or loop.is_closed():
            return look()

        async def looked() -> T:
            async with self._turn:
                return look()

        looking = asyncio.run_coroutine_threadsafe(looked(), loop)
        return await asyncio.wait_for(asyncio.wrap_future(looking), timeout_s)

    def _elected(self, term: int) -> None:
        self._from_elsewhere(happened.LeaderElected(term))

    def _lost(self, why: str) -> None:
        log_keys(log, logging.ERROR, "Leaderelection lost", err=why)
        self.when_lost()
        self.stop(f"leaderelection lost: {why}")

    def _from_elsewhere(self, event: Event) -> None:
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self.tell, event)

    # The loop.

    def tell(self, event: Event) -> None:
        """Something happened; from this event loop only."""
        self._inbox.append(event)
        self._awake.set()

    def _tell_all(self, events: list[Event]) -> None:
        self._inbox.extend(events)
        self._awake.set()

    @property
    def is_synced(self) -> bool:
        """True when all there was at the beginning has been taken in."""
        return self.following is not None and self.following.synced.is_set()

    async def run(self) -> int:
        """Schedule until somebody says stop; the exit code of the process. Raises
        CredentialError."""
        self._loop = asyncio.get_running_loop()
        gc.disable()
        api = ApiClient(self.options.connection, guard=self.leadership.may_write)
        try:
            async with api:
                return await self._run(api)
        finally:
            gc.enable()

    async def _run(self, api: ApiClient) -> int:
        options = self.options
        self.measures.api = api
        kinds: tuple[type[Object], ...] = (Node, Pod, *kinds_read(self.deciders))
        extenders = self.deciders.configuration.extenders
        whole = Whole() if extenders else None
        self.following = Following(
            api,
            resources_of(kinds, with_ended=self.deciders.batch is not None),
            self._tell_all,
            self._dice,
            streams=options.streams,
            whole=whole,
        )
        self._calling = Calling(extenders, spelt if whole is None else whole.spelt)
        performer = Performer(Series(platform.node(), self.following.version), moment)
        limiter = Limiter(options.qps, options.burst)
        self.hands = Hands(api, performer, self.tell, self._may_perform, limiter)
        names = ", ".join(sorted(self.machine_names()))
        log.info("schedulerName %s at %s", names, options.connection.server)
        self.hands.start()
        # What may fail for good fails here, before anything is begun.
        await asyncio.to_thread(self.leadership.start)
        self.following.start()
        warming = None
        if options.engine == "auto":
            warming = beginning_to_warm()
        try:
            await self._follow_until_synced()
            if warming is not None:
                await self._warmed(warming)
            await self._decide_until_stopped()
            await self._drain()
        finally:
            await self._end()
        return 1 if self.stopped_by else 0

    def machine_names(self) -> Iterable[str]:
        """The scheduler names whose pods are decided here."""
        yield from self.deciders.configuration.profiles
        if self.deciders.batch is not None:
            yield from self.deciders.batch.scheduler_names

    def _may_perform(self, effect: Effect) -> bool:
        return self.leadership.may_write(effect.term)

    async def _follow_until_synced(self) -> None:
        """Take in all there is before anything is decided. Nothing that is read is garbage."""
        assert self.following is not None
        begun = steady()
        elected: list[Event] = []
        while not self.following.synced.is_set() and not self._stopping.is_set():
            await self._nap(1.0)
            events = self._taken()
            elected += [e for e in events if isinstance(e, happened.LeaderElected)]
            self._handle([e for e in events if not isinstance(e, happened.LeaderElected)], 0)
        if self._stopping.is_set():
            return
        while self._inbox:
            events = self._taken()
            elected += [e for e in events if isinstance(e, happened.LeaderElected)]
            self._handle([e for e in events if not isinstance(e, happened.LeaderElected)], 0)
            await asyncio.sleep(0)
        gc.collect()
        gc.freeze()
        gc.enable()
        counts = ", ".join(
            f"{len(one)} {one.resource.title}" for one in self.following.informers if len(one)
        )
        log.info("synced in %.1f s: %s", (steady() - begun) / SECOND, counts or "nothing there")
        self._inbox.extendleft([*reversed(elected), happened.Synced()])

    async def _warmed(self, warming: asyncio.Future[None]) -> None:
        """Wait for that, unless somebody wants an end."""
        while not warming.done() and not self._stopping.is_set():
            self.beat_at = steady()
            await asyncio.wait({warming}, timeout=0.2)
        if warming.done():
            warming.result()

    async def _decide_until_stopped(self) -> None:
        while not self._stopping.is_set():
            events = self._taken()
            held_back = self.hands is not None and self.hands.n_waiting > WAITING_MAX
            if events or self._is_due():
                heads = 0 if held_back else self._heads
                if self._may_take_long():
                    await self._handle_aside(events, heads)
                else:
                    self._handle(events, heads)
            elif self.shadow is not None:
                self.shadow.serve_due(steady())
            self._check_tasks()
            if held_back or self._inbox or self._is_due():
                # Requests get their turn; where they do not keep up, more of it.
                await asyncio.sleep(_NOW if held_back else 0)
            else:
                await self._nap(self._nap_s())
                await self._gather()

    async def _gather(self) -> None:
        """Where the machine has just been called let some more come: a call has its price."""
        rest = self._called_at + CALLS_APART_NS - steady()
        if self._inbox and rest > 0:
            await asyncio.sleep(rest / SECOND)

    def _nap_s(self) -> float:
        if self._alarm is None:
            return 1.0
        return min(1.0, max(0.0, (self._alarm - steady()) / SECOND))

    async def _nap(self, seconds: float) -> None:
        self._awake.clear()
        self.beat_at = steady()
        if self._inbox or self._stopping.is_set():
            return
        # Without a task of its own, as this is done for every handful of events.
        alarm = asyncio.get_running_loop().call_later(seconds, self._awake.set)
        try:
            await self._awake.wait()
        finally:
            alarm.cancel()

    def _is_due(self) -> bool:
        return self._alarm is not None and steady() >= self._alarm

    def _taken(self) -> list[Event]:
        inbox = self._inbox
        if len(inbox) <= EVENTS_MAX:
            events = list(inbox)
            inbox.clear()
            return events
        return [inbox.popleft() for _ in range(EVENTS_MAX)]

    def _may_take_long(self) -> bool:
        """True when a call may hold a session."""
        sessions = self.machine.sessions
        return sessions is not None and sessions.due <= steady()

    def _handle(self, events: list[Event], heads: int) -> None:
        begun = self._calls()
        effects = self.machine.handle(events, begun, heads)
        took = steady() - begun
        if heads and took > CALL_NS:
            self._heads = max(HEADS_MIN, min(self._heads, heads * CALL_NS // took))
        elif heads and took < CALL_NS // 2:
            self._heads = min(HEADS_MAX, self._heads * 2)
        self._handled(events, effects, begun, took)

    async def _handle_aside(self, events: list[Event], heads: int) -> None:
        """The same in another thread, while requests, watches and looks at the clock go on."""
        async with self._turn:
            begun, held = self._calls(), self._n_sessions()
            call = asyncio.create_task(asyncio.to_thread(self.machine.handle, events, begun, heads))
            while not call.done():
                await asyncio.wait({call}, timeout=1.0)
                if steady() - begun < CALL_MAX_NS:
                    self.beat_at = steady()
            effects, took = call.result(), steady() - begun
            self._handled(events, effects, begun, took)
            if self._n_sessions() != held:
                if self.shadow is None:
                    self.decision_log.session(held + 1, effects, took)
                # The machine does not see how long it takes.
                self._handle([happened.SessionEnded()], 0)

    def _n_sessions(self) -> int:
        sessions = self.machine.sessions
        return 0 if sessions is None else sessions.number

    def _calls(self) -> int:
        """What time it is when the machine is called."""
        begun = steady()
        self.beat_at = self._called_at = begun
        if self._alarm is not None and begun >= self._alarm:
            self._alarm = None
        return begun

    def _handled(self, events: list[Event], effects: list[Effect], begun: int, took: int) -> None:
        self.measures.handled(events, effects, begun, took)
        if self.shadow is not None:
            self.shadow.seen(events, begun)
        else:
            self.decision_log.handled(events, effects, begun)
        for effect in effects:
            self._begin(effect)

    def _node_of(self, key: str) -> str:
        """The node of a pod, by namespace/name, as the watch shows it; "" for none."""
        following = self.following
        pod = None if following is None else following.pod(key)
        return "" if pod is None else pod.node_name

    # Effects.

    def _begin(self, effect: Effect) -> None:
        match effect:
            case to_do.Wake():
                # The machine asks once for the next time; a later one takes its place.
                self._alarm = effect.at
            case to_do.Report():
                level = logging.ERROR if effect.is_fault else logging.INFO
                log.log(level, "%s: %s", effect.subject, effect.text)
            case to_do.Cancel():
                self.outside.cancel(effect.prepare)
            case _ if self.shadow is not None and self.shadow.take(effect):
                return
            case to_do.Prepare():
                if self._may_perform(effect):
                    self.outside.prepare(effect)
            case to_do.CallExtender():
                assert self._calling is not None
                if self._may_perform(effect):
                    self.outside.begin(effect.effect, self._calling.ask(effect))
            case _:
                assert self.hands is not None
                self.hands.take(effect)

    # The end.

    def _check_tasks(self) -> None:
        """A bug in a task must not go unnoticed."""
        assert self.following is not None
        assert self.hands is not None
        for part in (self.following, self.hands):
            fault = part.failed()
            if fault is not None:
                raise fault

    async def _drain(self) -> None:
        """Let what has been begun come to its end, and what follows from that be told."""
        if self.stopped_by or self.hands is None or not self.leadership.leads:
            return
        log.info("stopping: %d writes under way", self.hands.n_waiting + self.hands.n_busy)
        ends = steady() + round(DRAIN_S * SECOND)
        while steady() < ends:
            is_settled = await self.hands.settled(0.1)
            if not self._inbox and is_settled:
                return
            self._handle(self._taken(), 0)

    async def _end(self) -> None:
        if self.following is not None:
            await self.following.stop()
        await self.outside.stop()
        if self.hands is not None:
            await self.hands.stop()
        if self._calling is not None:
            await self._calling.stop()
        await asyncio.to_thread(self.leadership.stop)


def _nothing() -> None:
    """Nobody wants to know."""
