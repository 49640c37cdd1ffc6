"""Preparing: the stage between Permit and Bind, in which PreBind plugins get things ready.

A plugin may work outside (`perform`), or have objects of the cluster changed and wait for what
comes of that (PreBindWait). The changes of a plugin are written one after the other; when the API
has taken all of them and the watch has shown them, the plugin is asked how far things are, and
again whenever a node or an object has changed, until it says that all is done, or its time is up.
Where very many wait, they are asked less often: there is always something that changes.

Differs: the original asks once a second, first a second after the last write.

Source: kube-scheduler v1.36, framework/runtime RunPreBindPlugins; of the waiting
plugins/volumebinding BindPodVolumes.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stowplan.framework import OK, Code, ContractError, ObjectChange, PreBindWait, Status, error
from stowplan.framework.member import Member
from stowplan.framework.world import World, key_of
from stowplan.messages.events import WriteDone, WriteFailed
from stowplan.objects.meta import Object
from stowplan.queue.options import in_ns
from stowplan.scheduler.context import Context
from stowplan.scheduler.deadlines import Deadlines
from stowplan.scheduler.journey import Journey
from stowplan.scheduler.works import Works

WAITS_FREE = 100
PACE = 100_000
"""Whole nanoseconds for each wait beyond WAITS_FREE: how long all are left alone once asked."""


class Written(msgspec.Struct, frozen=True):
    """A change that the API has taken.

    before: the object as the watch had last shown it when the change was sent. version: what the
    object has had since, "" where nobody said.
    """

    change: ObjectChange
    before: Object | None
    version: str = ""

    def is_shown(self, world: World) -> bool:
        """True when the watch has shown the object with this change, or that it is gone."""
        value = self.change.value
        now: Object | None = world.observed(type(value), key_of(value))
        if now is None:
            return True
        have = now.metadata.resource_version
        if have.isdecimal() and self.version.isdecimal():
            return int(have) >= int(self.version)
        return now is not self.before


class Wait(msgspec.Struct):
    """A plugin that waits for a pod's sake. effect: the number of the write under way, 0 for none.

    sent: the object of that write as the watch had last shown it.
    """

    uid: str
    journey: Journey
    member: Member
    asked: PreBindWait
    written: list[Written] = []
    effect: int = 0
    sent: Object | None = None

    @property
    def key(self) -> str:
        """Plugin and pod."""
        return f"{self.member.name} {self.uid}"

    def failed(self, reason: str) -> Status:
        """The plugin's failure, in the words of the original."""
        return error(f'running PreBind plugin "{self.member.name}": {reason}')


class Preparing:
    """The PreBind plugins that are at work, or wait."""

    def __init__(
        self,
        context: Context,
        works: Works,
        ready: Callable[[str, Journey], None],
        failed: Callable[[str, Journey, Status], None],
        broke: Callable[[str, Journey, ContractError], None],
    ) -> None:
        """ready: called with uid and journey when all plugins are done. failed, broke: when the
        journey has to end, as a plugin says so or breaks its contract."""
        self._context = context
        self._works = works
        self._ready = ready
        self._failed = failed
        self._broke = broke
        self._waits: dict[str, Wait] = {}
        self._by_write: dict[int, Wait] = {}
        self._deadlines: Deadlines[str] = Deadlines()
        self._looked = context.cache.version
        # All are to be asked again, but not before that time.
        self._look_at = 0
        self._is_held_back = False

    def __len__(self) -> int:
        """How many plugins wait."""
        return len(self._waits)

    # The way forward.

    def advance(self, uid: str, journey: Journey) -> None:
        """Ask the PreBind plugins that are left, until one has something to wait for; then go on.

        Neighbours that both allow it wait, or work, side by side. May raise ContractError.
        """
        framework, state = journey.framework, journey.state
        members = framework.at("preBind")
        while journey.step < len(members):
            member = members[journey.step]
            side_by_side = member.in_parallel and members[journey.step - 1].in_parallel
            if journey.is_busy and not side_by_side:
                return
            journey.step += 1
            if member.name in state.skip_pre_bind:
                continue
            answer = framework.run_pre_bind_of(member, journey.pod, journey.node, state)
            if isinstance(answer, PreBindWait):
                answer = self._begin(Wait(uid, journey, member, answer))
            if not answer.is_success:
                self._failed(uid, journey, answer)
                return
            if member.performs:
                work = self._works.start(member, "preBind", journey.pod, journey.node, state)
                journey.awaits += (work,)
        if not journey.is_busy:
            self._ready(uid, journey)

    def _begin(self, wait: Wait) -> Status:
        if not self._waits:
            self._looked = self._context.cache.version
        self._waits[wait.key] = wait
        wait.journey.waits += (wait.key,)
        return self._go_on(wait)

    def _go_on(self, wait: Wait) -> Status:
        """Send the next change; after the last one, ask how far things are."""
        context, changes = self._context, wait.asked.changes
        if len(wait.written) < len(changes):
            change = changes[len(wait.written)]
            wait.sent = context.cache.world.observed(type(change.value), key_of(change.value))
            wait.effect = context.outbox.write(wait.uid, change)
            self._by_write[wait.effect] = wait
            return OK
        wait.effect = 0
        self._deadlines.set(wait.key, context.now + in_ns(wait.asked.timeout_s))
        return self._ask(wait)

    def _ask(self, wait: Wait) -> Status:
        """How far things are: OK as long as nothing has failed. When all is done the wait ends."""
        cache, journey = self._context.cache, wait.journey
        if not all(written.is_shown(cache.world) for written in wait.written):
            return OK
        status = journey.framework.run_pre_bind_progress(
            wait.member, journey.pod, journey.node, cache.snapshot(), journey.state
        )
        if status.code is Code.WAIT:
            return OK
        if status.is_success:
            self._end(wait)
        return status

    # Outcomes, the watch, time.

    def write_done(self, event: WriteDone) -> None:
        """The API took a change."""
        wait = self._by_write.pop(event.effect, None)
        if wait is not None:
            change = wait.asked.changes[len(wait.written)]
            wait.written.append(Written(change, wait.sent, event.version))
            self._continue(wait, self._go_on)

    def write_failed(self, event: WriteFailed) -> None:
        """It did not: nothing more is written, and what others were told to expect is reverted."""
        wait = self._by_write.pop(event.effect, None)
        if wait is not None:
            reason = event.reason or f"the API answered {event.code}"
            self._failed(wait.uid, wait.journey, wait.failed(reason))

    def look(self) -> None:
        """Ask all that wait for the cluster to change, if it has."""
        version, now = self._context.cache.version, self._context.now
        if not self._waits or version == self._looked:
            return
        self._is_held_back = now < self._look_at
        if self._is_held_back:
            return
        self._looked = version
        self._look_at = now + max(0, len(self._waits) - WAITS_FREE) * PACE
        for key, wait in tuple(self._waits.items()):
            # The end of one wait may have ended others.
            if not wait.effect and key in self._waits:
                self._continue(wait, self._ask)

    def serve_due(self) -> None:
        """End the waits whose time is up."""
        for key in self._deadlines.due(self._context.now):
            wait = self._waits.get(key)
            if wait is not None:
                self._failed(wait.uid, wait.journey, wait.failed(wait.asked.late))

    def next_deadline(self) -> int | None:
        """When the next plugin's time is up, or all are to be asked."""
        deadline = self._deadlines.next()
        if self._is_held_back and self._waits:
            return self._look_at if deadline is None else min(self._look_at, deadline)
        return deadline

    def _continue(self, wait: Wait, step: Callable[[Wait], Status]) -> None:
        """Take a step, and see what it means for the journey. A plugin's fault fails it."""
        uid, journey = wait.uid, wait.journey
        try:
            status = step(wait)
            if not status.is_success:
                self._failed(uid, journey, status)
            elif wait.key not in self._waits:
                self.advance(uid, journey)
        except ContractError as fault:
            self._broke(uid, journey, fault)

    # Ends.

    def busy(self, journey: Journey) -> str:
        """The plugin that a journey in this stage waits for, the first if there are several."""
        if journey.waits:
            return self._waits[journey.waits[0]].member.name
        work = self._works.get(journey.awaits[0])
        assert work is not None
        return work.name

    def stop(self, journey: Journey) -> None:
        """The journey is over: nobody waits any more. What is written is not undone."""
        for key in journey.waits:
            self._end(self._waits[key])

    def _end(self, wait: Wait) -> None:
        del self._waits[wait.key]
        self._by_write.pop(wait.effect, None)
        self._deadlines.clear(wait.key)
        wait.journey.waits = tuple(key for key in wait.journey.waits if key != wait.key)
