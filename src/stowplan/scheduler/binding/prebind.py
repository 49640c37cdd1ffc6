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
from stowplan.framework.object_store import ObjectStore, key_of
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.messages.events import WriteDone, WriteFailed
from stowplan.objects.meta import Object
from stowplan.queue.options import seconds_to_ns
from stowplan.scheduler.binding.binding_cycle import BindingCycle
from stowplan.scheduler.binding.plugin_io import PendingPluginIO
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.deadlines import Deadlines

UNPACED_WAITS_MAX = 100
POLL_PACE_NS = 100_000
"""Whole nanoseconds for each wait beyond WAITS_FREE: how long all are left alone once asked."""


class AppliedChange(msgspec.Struct, frozen=True):
    """A change that the API has taken.

    before: the object as the watch had last shown it when the change was sent. version: what the
    object has had since, "" where nobody said.
    """

    change: ObjectChange
    before: Object | None
    version: str = ""

    def is_observed(self, object_store: ObjectStore) -> bool:
        """True when the watch has shown the object with this change, or that it is gone."""
        value = self.change.value
        now: Object | None = object_store.observed(type(value), key_of(value))
        if now is None:
            return True
        have = now.metadata.resource_version
        if have.isdecimal() and self.version.isdecimal():
            return int(have) >= int(self.version)
        return now is not self.before


class PreBindInProgress(msgspec.Struct):
    """A plugin that waits for a pod's sake. effect: the number of the write under way, 0 for none.

    sent: the object of that write as the watch had last shown it.
    """

    uid: str
    binding_cycle: BindingCycle
    member: RegisteredPlugin
    asked: PreBindWait
    written: list[AppliedChange] = []
    effect: int = 0
    sent: Object | None = None

    @property
    def key(self) -> str:
        """Plugin and pod."""
        return f"{self.member.name} {self.uid}"

    def failed(self, reason: str) -> Status:
        """The plugin's failure, in the words of the original."""
        return error(f'running PreBind plugin "{self.member.name}": {reason}')


class PreBindRunner:
    """The PreBind plugins that are at work, or wait."""

    def __init__(
        self,
        context: SchedulerContext,
        plugin_io: PendingPluginIO,
        ready: Callable[[str, BindingCycle], None],
        failed: Callable[[str, BindingCycle, Status], None],
        broke: Callable[[str, BindingCycle, ContractError], None],
    ) -> None:
        """ready: called with uid and journey when all plugins are done. failed, broke: when the
        journey has to end, as a plugin says so or breaks its contract."""
        self._context = context
        self._plugin_io = plugin_io
        self._ready = ready
        self._failed = failed
        self._broke = broke
        self._waits: dict[str, PreBindInProgress] = {}
        self._by_write: dict[int, PreBindInProgress] = {}
        self._deadlines: Deadlines[str] = Deadlines()
        self._polled_version = context.cache.version
        # All are to be asked again, but not before that time.
        self._poll_at = 0
        self._is_held_back = False

    def __len__(self) -> int:
        """How many plugins wait."""
        return len(self._waits)

    # The way forward.

    def advance(self, uid: str, binding_cycle: BindingCycle) -> None:
        """Ask the PreBind plugins that are left, until one has something to wait for; then go on.

        Neighbours that both allow it wait, or work, side by side. May raise ContractError.
        """
        framework, state = binding_cycle.framework, binding_cycle.state
        members = framework.at("preBind")
        while binding_cycle.step < len(members):
            member = members[binding_cycle.step]
            before = members[binding_cycle.step - 1].declaration
            side_by_side = member.declaration.perform_in_parallel and before.perform_in_parallel
            if binding_cycle.is_busy and not side_by_side:
                return
            binding_cycle.step += 1
            if member.name in state.skip_pre_bind:
                continue
            answer = framework.run_pre_bind_of(member, binding_cycle.pod, binding_cycle.node, state)
            if isinstance(answer, PreBindWait):
                answer = self._begin(PreBindInProgress(uid, binding_cycle, member, answer))
            if not answer.is_success:
                self._failed(uid, binding_cycle, answer)
                return
            if member.does_io:
                plugin_io = self._plugin_io.start(
                    member, "preBind", binding_cycle.pod, binding_cycle.node, state
                )
                binding_cycle.awaits += (plugin_io,)
        if not binding_cycle.is_busy:
            self._ready(uid, binding_cycle)

    def _begin(self, wait: PreBindInProgress) -> Status:
        if not self._waits:
            self._polled_version = self._context.cache.version
        self._waits[wait.key] = wait
        wait.binding_cycle.waits += (wait.key,)
        return self._go_on(wait)

    def _go_on(self, wait: PreBindInProgress) -> Status:
        """Send the next change; after the last one, ask how far things are."""
        context, changes = self._context, wait.asked.changes
        if len(wait.written) < len(changes):
            change = changes[len(wait.written)]
            wait.sent = context.cache.object_store.observed(
                type(change.value), key_of(change.value)
            )
            wait.effect = context.outbox.write(wait.uid, change)
            self._by_write[wait.effect] = wait
            return OK
        wait.effect = 0
        self._deadlines.set(wait.key, context.now + seconds_to_ns(wait.asked.timeout_s))
        return self._ask(wait)

    def _ask(self, wait: PreBindInProgress) -> Status:
        """How far things are: OK as long as nothing has failed. When all is done the wait ends."""
        cache, binding_cycle = self._context.cache, wait.binding_cycle
        if not all(written.is_observed(cache.object_store) for written in wait.written):
            return OK
        status = binding_cycle.framework.run_pre_bind_progress(
            wait.member,
            binding_cycle.pod,
            binding_cycle.node,
            cache.snapshot(),
            binding_cycle.state,
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
            wait.written.append(AppliedChange(change, wait.sent, event.version))
            self._continue(wait, self._go_on)

    def write_failed(self, event: WriteFailed) -> None:
        """It did not: nothing more is written, and what others were told to expect is reverted."""
        wait = self._by_write.pop(event.effect, None)
        if wait is not None:
            reason = event.reason or f"the API answered {event.code}"
            self._failed(wait.uid, wait.binding_cycle, wait.failed(reason))

    def poll(self) -> None:
        """Ask all that wait for the cluster to change, if it has."""
        version, now = self._context.cache.version, self._context.now
        if not self._waits or version == self._polled_version:
            return
        self._is_held_back = now < self._poll_at
        if self._is_held_back:
            return
        self._polled_version = version
        self._poll_at = now + max(0, len(self._waits) - UNPACED_WAITS_MAX) * POLL_PACE_NS
        for key, wait in tuple(self._waits.items()):
            # The end of one wait may have ended others.
            if not wait.effect and key in self._waits:
                self._continue(wait, self._ask)

    def serve_due(self) -> None:
        """End the waits whose time is up."""
        for key in self._deadlines.due(self._context.now):
            wait = self._waits.get(key)
            if wait is not None:
                self._failed(wait.uid, wait.binding_cycle, wait.failed(wait.asked.late))

    def next_deadline(self) -> int | None:
        """When the next plugin's time is up, or all are to be asked."""
        deadline = self._deadlines.next()
        if self._is_held_back and self._waits:
            return self._poll_at if deadline is None else min(self._poll_at, deadline)
        return deadline

    def _continue(
        self, wait: PreBindInProgress, step: Callable[[PreBindInProgress], Status]
    ) -> None:
        """Take a step, and see what it means for the journey. A plugin's fault fails it."""
        uid, binding_cycle = wait.uid, wait.binding_cycle
        try:
            status = step(wait)
            if not status.is_success:
                self._failed(uid, binding_cycle, status)
            elif wait.key not in self._waits:
                self.advance(uid, binding_cycle)
        except ContractError as fault:
            self._broke(uid, binding_cycle, fault)

    # Ends.

    def pending_plugin(self, binding_cycle: BindingCycle) -> str:
        """The plugin that a journey in this stage waits for, the first if there are several."""
        if binding_cycle.waits:
            return self._waits[binding_cycle.waits[0]].member.name
        plugin_io = self._plugin_io.get(binding_cycle.awaits[0])
        assert plugin_io is not None
        return plugin_io.name

    def stop(self, binding_cycle: BindingCycle) -> None:
        """The journey is over: nobody waits any more. What is written is not undone."""
        for key in binding_cycle.waits:
            self._end(self._waits[key])

    def _end(self, wait: PreBindInProgress) -> None:
        del self._waits[wait.key]
        self._by_write.pop(wait.effect, None)
        self._deadlines.clear(wait.key)
        wait.binding_cycle.waits = tuple(key for key in wait.binding_cycle.waits if key != wait.key)
