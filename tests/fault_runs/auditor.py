"""Auditor: a second, simpler model of a cluster that checks what schedulers do to it.

It is notified of the events that each scheduler receives, of the requests that the scheduler sends,
and of the API's replies, and knows nothing of queues, caches or plugins. From these it reports, at
every step, whether something has happened that must never happen (safety), and at rest whether
something has not happened that should have (liveness). The rules that it knows are amounts, node
selectors and taints. A node may be over-committed where no scheduler could have known: it has
shrunk, or another client has bound a pod to it, and the scheduler that bound the last pod had not
received that when it decided.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any

import msgspec

from stowplan.inputs.counts import count_of
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect, is_write
from stowplan.messages.events import Event
from stowplan.messages.extender_api import BOUND_BODY, OK_CODE, ExtenderBindingArgs
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.objects.pod_requests import requested
from stowplan.objects.quantity import Quantity, amount
from stowplan.objects.taints import tolerates
from stowplan.testing.session_invariants import Violation

HTTP_CREATED = 201
LOG_LINES_MAX = 60


class RequestedBinding(msgspec.Struct, frozen=True):
    """A requested binding.

    seen: the versions of pods and nodes received until then. is_ignorable_extender_bind: it was
    requested of an extender whose failure the scheduler ignores and binds itself. is_fallback_bind:
    the scheduler did so.
    """

    effect: int
    node: str
    pod: Pod
    seen: tuple[int, int]
    is_ignorable_extender_bind: bool = False
    is_fallback_bind: bool = False


class SchedulerView:
    """What one scheduler has received, and what it has requested since.

    open: by uid, the bindings that it cannot know to have failed. abandoned: the pods of those that
    it was notified to have failed, which an overtaken reply may report of one that was made.
    fallback_nodes: the node that an extender has failed to bind a pod to, so that the scheduler
    binds it itself.
    """

    def __init__(self, name: str, *, leads: bool, term: int) -> None:
        self.name = name
        self.leads = leads
        self.term = term
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.on: dict[str, dict[str, Pod]] = {}
        self.open: dict[str, RequestedBinding] = {}
        self.abandoned: set[str] = set()
        self.fallback_nodes: dict[str, str] = {}
        self.term_at_start = 0
        self.announced: set[tuple[str, str]] = set()

    # Received events.

    def begin(self) -> None:
        """Begin a call."""
        self.term_at_start = self.term if self.leads else 0

    def observe(self, event: Event) -> None:
        """Process an event."""
        match event:
            case happened.PodAdded(pod) | happened.PodUpdated(pod):
                self._observe_pod(pod)
            case happened.PodDeleted(pod):
                self._forget_pod(pod.key, pod.uid)
            case happened.NodeAdded(node) | happened.NodeUpdated(node):
                self.nodes[node.name] = node
            case happened.NodeDeleted(node):
                self.nodes.pop(node.name, None)
            case happened.BindFailed(effect, uid, code):
                if 400 <= code < 500 and code != 408:
                    self._abandon_binding(uid, effect, exact=True)
            case happened.PodRead(effect, uid, read):
                asked = self.open.get(uid)
                bound = read is not None and read.uid == uid and asked is not None
                if not (bound and read is not None and asked and read.node_name == asked.node):
                    self._abandon_binding(uid, effect, exact=False)
            case happened.ExtenderReplied(effect, uid, code, body):
                if code != OK_CODE or body != BOUND_BODY:
                    self.extender_bind_failed(effect)
            case happened.ExtenderFailed(effect, uid):
                self.extender_bind_failed(effect)
            case happened.LeaderElected(term):
                self.leads, self.term = True, term
            case happened.LeaderLost():
                self.leads = False

    def _observe_pod(self, pod: Pod) -> None:
        before = self.pods.get(pod.key)
        if before is not None:
            if before.uid != pod.uid:
                self.open.pop(before.uid, None)
            self._remove_from_node(before)
        if pod.is_finished:
            self.pods.pop(pod.key, None)
            self.open.pop(pod.uid, None)
            return
        self.pods[pod.key] = pod
        if pod.node_name:
            self.on.setdefault(pod.node_name, {})[pod.uid] = pod
        if pod.node_name or pod.metadata.deletion_timestamp is not None:
            self.open.pop(pod.uid, None)

    def _forget_pod(self, key: str, uid: str) -> None:
        before = self.pods.get(key)
        if before is not None and before.uid == uid:
            del self.pods[key]
            self._remove_from_node(before)
            self.open.pop(uid, None)

    def _remove_from_node(self, pod: Pod) -> None:
        if pod.node_name:
            self.on.get(pod.node_name, {}).pop(pod.uid, None)

    def _abandon_binding(self, uid: str, effect: int, *, exact: bool) -> None:
        """An outcome reports that a binding was not made; a read counts that came after it."""
        asked = self.open.get(uid)
        if asked is not None and (effect == asked.effect if exact else effect > asked.effect):
            del self.open[uid]
            self.abandoned.add(uid)

    def extender_bind_failed(self, effect: int) -> None:
        """A call of an extender has failed or timed out."""
        for uid, asked in tuple(self.open.items()):
            if asked.effect == effect and asked.is_ignorable_extender_bind:
                self._abandon_binding(uid, effect, exact=True)
                self.fallback_nodes[uid] = asked.node

    def pod(self, uid: str) -> Pod | None:
        """The latest version of a pod, None when it is unknown."""
        return next((pod for pod in self.pods.values() if pod.uid == uid), None)

    def nodes_of(self, pod: Pod) -> Iterator[str]:
        """The node of a pod, or the nodes that it may be bound to."""
        asked = self.open.get(pod.uid)
        if pod.node_name:
            yield pod.node_name
        elif asked is not None:
            yield asked.node
        else:
            yield from (node for uid, node in self.announced if uid == pod.uid)
            if pod.status.nominated_node_name:
                yield pod.status.nominated_node_name

    def pods_on(self, node: str) -> Iterator[Pod]:
        """Pods on the node, and pods that may be bound to it."""
        yield from self.on.get(node, {}).values()
        for asked in self.open.values():
            if asked.node == node:
                yield asked.pod


class Auditor:
    """Checks of all schedulers of a cluster.

    waits: which pods may pause between the choice of a node and Bind, so that the node may change
    meanwhile. evicts: whether pods that could preempt must not wait at rest. extender_rejects:
    which pods an extender keeps from which nodes in any case; extender_must_reject: those of them
    that it must never fail to.
    """

    def __init__(
        self,
        waits: Callable[[Pod], bool],
        *,
        evicts: bool = True,
        extender_rejects: Callable[[Pod, str], bool] = lambda pod, node: False,
        extender_must_reject: Callable[[Pod, str], bool] = lambda pod, node: False,
    ) -> None:
        self._waits = waits
        self._evicts = evicts
        self._extender_rejects = extender_rejects
        self._extender_must_reject = extender_must_reject
        self.views: dict[str, SchedulerView] = {}
        self.holder = ""
        self.term = 1
        self.version = 0
        self.nodes: dict[str, Node] = {}
        self.pods: dict[str, Pod] = {}
        self.event_log: list[tuple[int, str, Any]] = []
        self.now = 0
        self._node_changed: dict[str, int] = {}
        self._bound_at: dict[str, int] = {}
        self._own: set[tuple[str, str]] = set()
        self._n_bound: dict[str, int] = {}

    # Notifications.

    def joined(self, name: str, *, leads: bool, term: int) -> None:
        """A scheduler starts, and has received nothing."""
        self.views[name] = SchedulerView(name, leads=leads, term=term)
        if leads:
            self.holder, self.term = name, term

    def leads(self, name: str, term: int) -> None:
        """A scheduler, or none, is the leader from now on."""
        self.holder, self.term = name, term

    def changed(self, version: int, event: Event) -> None:
        """The cluster has changed."""
        self.version = version
        self.event_log.append((self.now, "cluster", event))
        match event:
            case happened.PodAdded(pod) | happened.PodUpdated(pod):
                if pod.is_finished:
                    self.pods.pop(pod.uid, None)
                    return
                before = self.pods.get(pod.uid)
                if pod.node_name and (before is None or not before.node_name):
                    self._bound_at[pod.uid] = version
                self.pods[pod.uid] = pod
            case happened.PodDeleted(pod):
                self.pods.pop(pod.uid, None)
            case happened.NodeAdded(node) | happened.NodeUpdated(node):
                self.nodes[node.name] = node
                self._node_changed[node.name] = version
            case happened.NodeDeleted(node):
                self.nodes.pop(node.name, None)
                self._node_changed[node.name] = version

    def called(
        self,
        name: str,
        events: Iterable[Event],
        effects: Iterable[Effect],
        seen: tuple[int, int],
    ) -> None:
        """A scheduler received something and requests something. Raises Violation.

        seen: up to which versions it has received pods and nodes.
        """
        view, record = self.views[name], self.event_log.append
        view.begin()
        for event in events:
            record((self.now, f"{name} <-", event))
            view.observe(event)
        asked = list(effects)
        for effect in asked:
            record((self.now, f"{name} ->", effect))
            if isinstance(effect, to_do.PatchStatus) and effect.nominated_node:
                view.announced.add((effect.uid, effect.nominated_node))
        for effect in asked:
            self._check_effect(view, effect, seen)

    def sent(self, name: str, effect: Effect) -> None:
        """A scheduler sends what it has requested. Raises Violation."""
        if self.holder != name or effect.term != self.term:
            lead = f"{self.holder or 'no scheduler'} leads in term {self.term}"
            raise Violation(f"{name} writes though {lead}: {effect}", uid_of(effect))

    def taken(self, name: str, effect: Effect, code: int) -> None:
        """The API has replied to a request of a scheduler. Raises Violation."""
        asks = as_bind(effect)
        if code != HTTP_CREATED or asks is None:
            return
        uid = asks.uid
        self._n_bound[uid] = self._n_bound.get(uid, 0) + 1
        if self._n_bound[uid] > 1:
            raise Violation(f"the API took {self._n_bound[uid]} bindings of {asks.name}", uid)
        asked = self.views[name].open.get(uid)
        if asked is None or asked.effect != asks.effect:
            # Given up by this scheduler: counts as pending until the watch shows it.
            return
        self._own.add((name, uid))
        self._check_truth(name, asked)

    # Safety.

    def _check_effect(self, view: SchedulerView, effect: Effect, seen: tuple[int, int]) -> None:
        if isinstance(effect, to_do.Cancel):
            view.extender_bind_failed(effect.prepare)
        if not is_write(effect):
            return
        # The dispatcher does not send effects of the call in which leadership was lost.
        leads = view.leads and effect.term == view.term
        if not leads and effect.term != view.term_at_start:
            lead = f"in term {view.term}" if view.leads else "not"
            raise Violation(f"{view.name} leads {lead} and asks for {effect}", uid_of(effect))
        asks = as_bind(effect)
        if asks is not None:
            is_ignorable_extender_bind = (
                isinstance(effect, to_do.CallExtender) and effect.question.extender.ignorable
            )
            self._check_bind(
                view, asks, seen, is_ignorable_extender_bind=is_ignorable_extender_bind
            )
        elif isinstance(effect, to_do.Evict):
            self._check_evict(view, effect)

    def _check_bind(
        self,
        view: SchedulerView,
        effect: to_do.Bind,
        seen: tuple[int, int],
        *,
        is_ignorable_extender_bind: bool,
    ) -> None:
        uid = effect.uid
        key = f"{effect.namespace}/{effect.name}"
        pod = view.pods.get(key)
        if pod is None or pod.uid != uid or pod.node_name:
            state = "gone" if pod is None or pod.uid != uid else f"bound to {pod.node_name}"
            raise Violation(f"{view.name} binds {effect.name}, which it observed as {state}", uid)
        if uid in view.open:
            node = view.open[uid].node
            raise Violation(f"{view.name} binds {effect.name} twice, to {node} before", uid)
        if self._extender_must_reject(pod, effect.node):
            raise Violation(f"{view.name} binds {effect.name} where an extender bars it", uid)
        is_fallback_bind = view.fallback_nodes.pop(uid, "") == effect.node
        if not self._waits(pod) and not is_fallback_bind:
            node_there = view.nodes.get(effect.node)
            if node_there is None:
                raise Violation(f"{view.name} binds {effect.name} to {effect.node}: no node", uid)
            why = misfit_reason(pod, node_there, view.pods_on(effect.node))
            if why:
                raise Violation(f"{view.name} binds {effect.name} to {effect.node}: {why}", uid)
        view.open[uid] = RequestedBinding(
            effect.effect, effect.node, pod, seen, is_ignorable_extender_bind, is_fallback_bind
        )

    def _check_evict(self, view: SchedulerView, effect: to_do.Evict) -> None:
        uid = effect.uid
        victim, preemptor = view.pod(uid), view.pod(effect.preemptor)
        who = f"{view.name} evicts {effect.name} for {effect.preemptor}"
        if victim is None:
            raise Violation(f"{who}: it has not received such a pod", uid)
        if preemptor is None or preemptor.node_name:
            raise Violation(f"{who}: the pod that preempts is not pending", uid)
        if victim.priority >= preemptor.priority:
            raise Violation(f"{who}: its priority is no lower", uid)
        nodes = set(view.nodes_of(victim))
        cleared = {preemptor.status.nominated_node_name}
        cleared |= {node for one, node in view.announced if one == preemptor.uid}
        if not nodes & cleared:
            raise Violation(f"{who}: without a notification that {sorted(nodes)} is cleared", uid)

    def _check_truth(self, name: str, asked: RequestedBinding) -> None:
        """A pod has been bound: its node is not over-committed, unless no scheduler could know."""
        pod = asked.pod
        if self._waits(pod) or asked.is_fallback_bind:
            return
        node = self.nodes.get(asked.node)
        seen_pods, seen_nodes = asked.seen
        if self._node_changed.get(asked.node, 0) > seen_nodes:
            return
        others = [
            other
            for other in self.pods.values()
            if other.node_name == asked.node and other.uid != pod.uid
        ]
        counted_on = {uid for by, uid in self._own if by == name} - self.views[name].abandoned
        unknown = any(
            self._bound_at[other.uid] > seen_pods and other.uid not in counted_on
            for other in others
        )
        why = "there is no such node" if node is None else misfit_reason(pod, node, others)
        why = why or self.device_misfit(self.pods.get(pod.uid, pod), others)
        if why and not unknown:
            raise Violation(f"{name} has bound {pod.name} to {asked.node}: {why}", pod.uid)

    def device_misfit(self, pod: Pod, others: list[Pod]) -> str:
        """Why the devices of a bound pod are not its own; "" here, where nodes have none."""
        return ""

    # Liveness.

    def at_rest(self, held: Callable[[Pod], bool]) -> None:
        """All events and replies are delivered: every pending pod has a reason. Raises Violation.

        held: which pods wait for something that the auditor does not model.
        """
        for pod in self.pods.values():
            if not pod.node_name and not is_terminating(pod) and not held(pod):
                for node in self.nodes.values():
                    if not self._extender_rejects(pod, node.name):
                        self._check_pending_reason(pod, node)

    def _check_pending_reason(self, pod: Pod, node: Node) -> None:
        there = [one for one in self.pods.values() if self._counts_on(one, node, pod)]
        if not misfit_reason(pod, node, there):
            raise Violation(f"{pod.name} fits on {node.name} and waits", pod.uid)
        if self._evicts and pod.spec.preemption_policy != "Never":
            # Who is nominated is not there to be evicted.
            left = [
                one for one in there if one.priority >= pod.priority and not is_terminating(one)
            ]
            if not any(is_terminating(one) for one in there) and not misfit_reason(pod, node, left):
                raise Violation(f"{pod.name} could make room on {node.name} and waits", pod.uid)

    def _counts_on(self, one: Pod, node: Node, waiting: Pod) -> bool:
        """True for a pod on the node, or nominated to it and before the pending one."""
        if one.node_name:
            return one.node_name == node.name
        nominated = one.status.nominated_node_name == node.name
        return nominated and one.uid != waiting.uid and one.priority >= waiting.priority

    # Event logs.

    def pod_log(self, uid: str) -> list[str]:
        """All that is known of a pod, a line each, the latest lines where they are many."""
        lines = [
            f"{now / 1e9:9.3f}  {who:<10} {format_message(message)}"
            for now, who, message in self.event_log
            if not uid or uid_of(message) == uid
        ]
        return lines[-LOG_LINES_MAX:]


def format_message(message: Any) -> str:
    """An event or effect as a short line."""
    kind = type(message).__name__
    if hasattr(message, "node") and isinstance(message.node, Node):
        node = message.node
        flags = " cordoned" if node.spec.unschedulable else ""
        flags += "".join(f" taint {taint.key}" for taint in node.taints)
        return f"{kind} {node.name} {dict(node.status.allocatable)}{flags}"
    pod = getattr(message, "pod", None)
    if isinstance(pod, Pod):
        version = pod.metadata.resource_version
        parts = [
            f"{kind} {pod.uid} version {version} asks {requests_of(pod)} priority {pod.priority}"
        ]
        parts += [f"on {pod.node_name}"] if pod.node_name else []
        nominated = pod.status.nominated_node_name
        parts += [f"nominated {nominated}"] if nominated else []
        parts += ["leaving"] if is_terminating(pod) else []
        return " ".join([*parts, pod.status.phase]).strip()
    if isinstance(message, msgspec.Struct):
        fields = {name: getattr(message, name) for name in message.__struct_fields__}
        hidden = ("namespace", "name", "scheduler", "action")
        pod_log = (f"{key}={value}" for key, value in fields.items() if key not in hidden and value)
        return f"{kind} {' '.join(pod_log)}"
    return str(message)


def as_bind(effect: Effect) -> to_do.Bind | None:
    """The requested binding, of the API or of an extender; None for another effect."""
    if isinstance(effect, to_do.Bind):
        return effect
    body = effect.question.body if isinstance(effect, to_do.CallExtender) else None
    if not isinstance(body, ExtenderBindingArgs):
        return None
    who = (body.pod_uid, body.pod_namespace, body.pod_name)
    return to_do.Bind(effect.effect, effect.term, *who, body.node)


def uid_of(message: Any) -> str:
    """The uid of the pod of an event or effect, "" where there is none."""
    pod = getattr(message, "pod", None)
    if pod is not None:
        return str(pod.uid)
    return str(getattr(message, "uid", ""))


def is_terminating(pod: Pod) -> bool:
    """True for a pod that is being deleted."""
    return pod.metadata.deletion_timestamp is not None


def misfit_reason(pod: Pod, node: Node, there: Iterable[Pod]) -> str:
    """Why a pod does not fit beside others on a node, "" when it does."""
    wanted = pod.spec.node_selector or {}
    if any(node.labels.get(key) != value for key, value in wanted.items()):
        return "its node selector does not match"
    if node.spec.unschedulable:
        return "it is cordoned"
    for taint in node.taints:
        hard = taint.effect in ("NoSchedule", "NoExecute")
        if hard and not any(tolerates(one, taint) for one in pod.tolerations):
            return f"it has the taint {taint.key}"
    others = [one for one in there if one.uid != pod.uid]
    offered = allocatable_of(node.status.allocatable)
    if len(others) + 1 > offered.get("pods", 0):
        return f"it has {count_of(len(others), 'pod')}, and takes {offered.get('pods', 0)}"
    for name, wants in requests_of(pod).items():
        taken = sum(requests_of(one).get(name, 0) for one in others)
        if wants and wants + taken > offered.get(name, 0):
            return f"{name}: {wants} wanted, {taken} taken of {offered.get(name, 0)}"
    return ""


def allocatable_of(offered: Mapping[str, Quantity]) -> dict[str, int]:
    """Allocatable amounts of a node, in base units."""
    return {name: _amount(name, quantity) for name, quantity in offered.items()}


@cache
def _amount(name: str, quantity: Quantity) -> int:
    return amount(name, quantity)


def requests_of(pod: Pod) -> Mapping[str, int]:
    """Requests of a pod; equal for all pods of a spec."""
    kept: dict[str, int] | None = pod.spec.__dict__.get(_KEPT)
    if kept is None:
        kept = pod.spec.__dict__[_KEPT] = requested(pod)
    return kept


_KEPT = "Auditor asks"
