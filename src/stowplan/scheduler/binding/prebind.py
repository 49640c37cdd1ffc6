"""PreBind: the stage between Permit and Bind, in which plugins prepare what the pod needs.

A plugin may do I/O (`perform`), or change objects of the cluster and wait for the result
(PreBindWait). A plugin's changes are written one after the other. Once the API server has accepted
all of them and the watch has shown them, the plugin is polled, and again whenever a node or an
object changes, until it reports that it is done or times out. With very many waits, polls are
spaced out, since something changes all the time.

Differs: the original polls once a second, starting one second after the last write.

Source: kube-scheduler v1.36, framework/runtime RunPreBindPlugins; for waiting plugins volumebinding
BindPodVolumes.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from stowplan.framework import OK, Code, ContractError, ObjectChange, PreBindWait, Status, error
from stowplan.framework.object_store import ObjectStore, key_of
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.messages.events import WriteDone, WriteFailed
from stowplan.objects.meta import Object
from stowplan.objects.timing.due_times import DueHeap
from stowplan.queue import PodRecord
from stowplan.queue.options import seconds_to_ns
from stowplan.scheduler.binding.plugin_io import PendingPluginIO
from stowplan.scheduler.context import SchedulerContext
from stowplan.scheduler.pods.transitions import PodEvent

CONFLICT = 409
UNPACED_WAITS_MAX = 100
RESENDS_MAX = 30
RESEND_NS = 1_000_000_000
"""How often, and after how many nanoseconds, a write is sent again whose outcome is not known."""
POLL_PACE_NS = 100_000
"""Nanoseconds added to the poll interval for each wait beyond UNPACED_WAITS_MAX."""


class AppliedChange(msgspec.Struct, frozen=True):
    """A change that the API server has accepted.

    before: the object in the version that the watch had shown when the change was sent. version:
    resourceVersion after the change, "" if unknown.
    """

    change: ObjectChange
    before: Object | None
    version: str = ""

    def is_observed(self, object_store: ObjectStore) -> bool:
        """True if the watch has shown the object with this change, or its deletion."""
        value = self.change.value
        now: Object | None = object_store.observed(type(value), key_of(value))
        if now is None:
            return not self.change.creates
        have = now.metadata.resource_version
        if have.isdecimal() and self.version.isdecimal():
            return int(have) >= int(self.version)
        return now is not self.before


def _following(applied: list[AppliedChange], change: ObjectChange) -> ObjectChange:
    """The change, on the version that the change before it gave the same object."""
    if not applied:
        return change
    before, value = applied[-1], change.value
    same = type(before.change.value) is type(value) and key_of(before.change.value) == key_of(value)
    if not same or not before.version:
        return change
    metadata = msgspec.structs.replace(value.metadata, resource_version=before.version)
    return ObjectChange(msgspec.structs.replace(value, metadata=metadata), change.patch)


class PreBindInProgress(msgspec.Struct):
    """One plugin's wait on behalf of one pod.

    key: plugin name and pod uid. effect: number of the write in progress, 0 for none. sent: the
    object of that write in the version that the watch had shown. n_resent: how often a write was
    sent again. is_resending: it will be.
    """

    record: PodRecord
    member: RegisteredPlugin
    asked: PreBindWait
    key: str
    applied: list[AppliedChange] = []
    effect: int = 0
    sent: Object | None = None
    n_resent: int = 0
    is_resending: bool = False

    @property
    def uid(self) -> str:
        """Uid of the pod."""
        return self.record.uid

    def failed(self, reason: str) -> Status:
        """Status of the plugin's failure, in the original's wording."""
        return error(f'running PreBind plugin "{self.member.name}": {reason}')


class PreBindRunner:
    """Runs PreBind plugins and keeps those that do I/O or wait."""

    def __init__(
        self,
        context: SchedulerContext,
        plugin_io: PendingPluginIO,
        ready: Callable[[PodRecord], None],
        failed: Callable[[PodRecord, Status], None],
        contract_broken: Callable[[PodRecord, ContractError], None],
    ) -> None:
        """ready: called when all plugins are done. failed: called when a
        plugin fails. contract_broken: called when a plugin breaks its contract."""
        self._context = context
        self._table = context.table
        self._plugin_io = plugin_io
        self._ready = ready
        self._failed = failed
        self._contract_broken = contract_broken
        self._waits: dict[str, PreBindInProgress] = {}
        self._by_write: dict[int, PreBindInProgress] = {}
        self._deadlines: DueHeap[str, int] = DueHeap()
        self._polled_version = context.cache.version
        # Earliest time of the next poll, while polls are spaced out.
        self._poll_at = 0
        self._is_paced = False

    def __len__(self) -> int:
        """Number of waiting plugins."""
        return len(self._waits)

    # Stages.

    def advance(self, record: PodRecord) -> None:
        """Run the remaining PreBind plugins until one has to wait; call `ready` after the last.

        Consecutive plugins that allow it wait, or do I/O, in parallel. May raise ContractError.
        """
        framework, state = record.binding.attempt
        members = framework.at("preBind")
        while record.binding.step < len(members):
            member = members[record.binding.step]
            before = members[record.binding.step - 1].declaration
            side_by_side = member.declaration.perform_in_parallel and before.perform_in_parallel
            if record.binding.is_busy and not side_by_side:
                return
            record.binding.step += 1
            if member.name in state.skip_pre_bind:
                continue
            answer = framework.run_pre_bind_of(member, record.pod, record.binding.node, state)
            if isinstance(answer, PreBindWait):
                key = f"{member.name} {record.uid}"
                answer = self._begin(PreBindInProgress(record, member, answer, key))
            if not answer.is_success:
                self._failed(record, answer)
                return
            if member.does_io:
                pod, node = record.pod, record.binding.node
                plugin_io = self._plugin_io.start(member, "preBind", pod, node, state)
                record.binding.awaits += (plugin_io,)
        if not record.binding.is_busy:
            self._ready(record)

    def _begin(self, wait: PreBindInProgress) -> Status:
        if not self._waits:
            self._polled_version = self._context.cache.version
        self._waits[wait.key] = wait
        wait.record.binding.waits += (wait.key,)
        return self._write_next(wait)

    def _write_next(self, wait: PreBindInProgress) -> Status:
        """Send the next change; after the last one, poll the plugin."""
        context, changes = self._context, wait.asked.changes
        if len(wait.applied) < len(changes):
            change = _following(wait.applied, changes[len(wait.applied)])
            wait.sent = context.cache.object_store.observed(
                type(change.value), key_of(change.value)
            )
            wait.effect = context.outbox.write(wait.uid, change)
            self._by_write[wait.effect] = wait
            return OK
        wait.effect = 0
        if wait.asked.event:
            reason, note = wait.asked.event
            context.outbox.record(wait.record.pod, "Normal", reason, "Scheduling", note)
        self._deadlines.set(wait.key, context.now + seconds_to_ns(wait.asked.timeout_s))
        return self._poll_plugin(wait)

    def _poll_plugin(self, wait: PreBindInProgress) -> Status:
        """Poll the plugin; the wait ends when it is done. Returns OK unless it failed."""
        cache, record = self._context.cache, wait.record
        if not all(written.is_observed(cache.object_store) for written in wait.applied):
            return OK
        framework, state = record.binding.attempt
        status = framework.run_pre_bind_progress(
            wait.member, record.pod, record.binding.node, cache.snapshot(), state
        )
        if status.code is Code.WAIT:
            return OK
        if status.is_success:
            self._end(wait)
        return status

    # Outcomes, the watch, time.

    def write_done(self, event: WriteDone) -> None:
        """The API server accepted a change."""
        wait = self._by_write.pop(event.effect, None)
        if wait is not None:
            self._table.transition(wait.record, PodEvent.WRITE_DONE, (wait, event))
        else:
            self._context.requested_write_ended(event)

    def written(self, _: PodRecord, answer: tuple[PreBindInProgress, WriteDone]) -> None:
        """A change of a pod in PreBind is written: write the next one, or wait for the result."""
        wait, event = answer
        change = wait.asked.changes[len(wait.applied)]
        wait.applied.append(AppliedChange(change, wait.sent, event.version))
        self._continue(wait, self._write_next)

    def write_failed(self, event: WriteFailed) -> None:
        """A change was refused: write no more of them and revert the assumed objects."""
        wait = self._by_write.pop(event.effect, None)
        if wait is None:
            self._context.requested_write_ended(event)
            return
        if self._may_have_happened(wait, event):
            wait.effect, wait.is_resending = 0, True
            wait.n_resent += 1
            self._deadlines.set(wait.key, self._context.now + RESEND_NS)
            return
        retries = self._context.pod_groups is not None and event.code == CONFLICT
        if retries and wait.member.calls["pre_bind_conflict"] is not None:
            # The members of a group write the same objects.
            self._continue(wait, self._try_again)
        else:
            reason = event.reason or f"the API server returned {event.code}"
            self._table.transition(wait.record, PodEvent.WRITE_FAILED, wait.failed(reason))

    def _may_have_happened(self, wait: PreBindInProgress, event: WriteFailed) -> bool:
        """True where a write may have happened, or may happen yet, and the watch does not show it:
        what it takes stays taken. It is sent again with the same version, so that only one of them
        succeeds; after a conflict the watch is waited for.

        Differs: the original gives devices back at once, so that a late write gives them to two.
        """
        if wait.n_resent >= RESENDS_MAX:
            return False
        if not event.is_definite:
            return True
        if event.code != CONFLICT or wait.n_resent == 0:
            return False
        change = _following(wait.applied, wait.asked.changes[len(wait.applied)])
        value = change.value
        now: Object | None = self._context.cache.object_store.observed(type(value), key_of(value))
        if now is None:
            return change.creates
        have, base = now.metadata.resource_version, value.metadata.resource_version
        if have.isdecimal() and base.isdecimal():
            return int(have) <= int(base)
        return have == base

    def _try_again(self, wait: PreBindInProgress) -> Status:
        """After a conflict, ask the plugin for changes of the object's new version."""
        state = wait.record.binding.attempt[1]
        node = wait.record.binding.node
        answer = wait.member.call("pre_bind_conflict", wait.record.pod, node, state)
        if not isinstance(answer, PreBindWait):
            return wait.failed(answer.message)
        wait.asked, wait.applied = answer, []
        return self._write_next(wait)

    def poll(self) -> None:
        """Poll all waiting plugins if the cluster has changed since the last poll."""
        version, now = self._context.cache.version, self._context.now
        if not self._waits or version == self._polled_version:
            return
        self._is_paced = now < self._poll_at
        if self._is_paced:
            return
        self._polled_version = version
        self._poll_at = now + max(0, len(self._waits) - UNPACED_WAITS_MAX) * POLL_PACE_NS
        for key, wait in tuple(self._waits.items()):
            # Ending one wait may have ended others.
            if not wait.effect and not wait.is_resending and key in self._waits:
                self._continue(wait, self._poll_plugin)

    def serve_due(self) -> None:
        """End the waits that timed out."""
        for key in self._deadlines.due(self._context.now):
            wait = self._waits.get(key)
            if wait is not None and wait.is_resending:
                wait.is_resending = False
                self._continue(wait, self._write_next)
            elif wait is not None:
                late = wait.failed(wait.asked.late)
                self._table.transition(wait.record, PodEvent.PREBIND_TIMED_OUT, late)

    def next_deadline(self) -> int | None:
        """The next time at which a wait times out or all are polled; None if there is none."""
        deadline = self._deadlines.next_at()
        if self._is_paced and self._waits:
            return self._poll_at if deadline is None else min(self._poll_at, deadline)
        return deadline

    def _continue(
        self, wait: PreBindInProgress, step: Callable[[PreBindInProgress], Status]
    ) -> None:
        """Run a step and apply its result to the binding cycle; a contract error fails the
        cycle."""
        record = wait.record
        try:
            status = step(wait)
            if not status.is_success:
                self._failed(record, status)
            elif wait.key not in self._waits:
                self.advance(record)
        except ContractError as fault:
            self._contract_broken(record, fault)

    # Ends.

    def pending_plugin(self, record: PodRecord) -> str:
        """Name of the first plugin that the binding cycle waits for."""
        if record.binding.waits:
            return self._waits[record.binding.waits[0]].member.name
        plugin_io = self._plugin_io.get(record.binding.awaits[0])
        assert plugin_io is not None
        return plugin_io.name

    def stop(self, record: PodRecord) -> None:
        """End all waits of a binding cycle. Changes that were written stay."""
        for key in record.binding.waits:
            self._end(self._waits[key])

    def _end(self, wait: PreBindInProgress) -> None:
        del self._waits[wait.key]
        self._by_write.pop(wait.effect, None)
        self._deadlines.clear(wait.key)
        cycle = wait.record.binding
        cycle.waits = tuple(key for key in cycle.waits if key != wait.key)
