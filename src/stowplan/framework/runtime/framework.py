"""The framework of a profile: calls its plugins at the extension points of an attempt.

Source: kube-scheduler v1.36, framework/runtime. The protocols in `plugin` document what each result
causes; this module implements it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from stowplan._deprecated import deprecated_method
from stowplan.columns import NodeInfo, NodeTable, PodInfo, Rows
from stowplan.columns.array_types import Ints
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.diagnosis import Diagnosis
from stowplan.framework.extension_points import EXTENSION_POINTS
from stowplan.framework.feature_gates import FeatureGates
from stowplan.framework.handle_state import HandleState
from stowplan.framework.node_to_status import PASSED, NodeToStatus, PluginVerdicts, as_refusal
from stowplan.framework.plugin import (
    SCORE_MAX,
    PermitWait,
    PostFilterResult,
    PreBindWait,
    QueuedPod,
    RestrictTo,
)
from stowplan.framework.plugin_calls import construct_plugin
from stowplan.framework.problems import ContractError
from stowplan.framework.profile import Profile
from stowplan.framework.runtime.declarations import ReadAnnotations
from stowplan.framework.runtime.joined_refusals import join_refusals
from stowplan.framework.runtime.kept_plugins import kept_plugin
from stowplan.framework.runtime.nominated_pods import (
    MANY_ROWS,
    NominatedVerdicts,
    can_filter_by_amounts,
    refusals_with_nominated_pods,
)
from stowplan.framework.runtime.outcomes import (
    PreFilterOutcome,
    Scores,
    checked_status,
    no_nodes_left,
)
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin, calls_of
from stowplan.framework.runtime.registry import Registry
from stowplan.framework.runtime.row_verdicts import RowVerdicts
from stowplan.framework.snapshot import Snapshot
from stowplan.framework.status import OK, SKIP, Code, Status, error
from stowplan.objects.pod import Pod


class Handle:
    """Passed to plugin constructors: feature gates, shared state, and the profile's framework."""

    def __init__(self, gates: FeatureGates, shared: HandleState | None = None) -> None:
        self.gates = gates
        self.shared = HandleState() if shared is None else shared
        self._framework: Framework | None = None

    @property
    def framework(self) -> Framework:
        """The profile's framework; not available while plugins are constructed."""
        if self._framework is None:
            raise ContractError("handle.framework is not there yet in a plugin's constructor")
        return self._framework


class Framework:
    """The plugins of one profile, ready to be called."""

    registered_plugin_class = RegisteredPlugin

    def __init__(
        self,
        profile: Profile,
        registry: Registry,
        gates: FeatureGates,
        shared: HandleState | None = None,
        *,
        columns: bool = True,
        before: Framework | None = None,
    ) -> None:
        """Raises ContractError when a plugin cannot be constructed or the profile is invalid.

        shared: with the other profiles of the scheduler. columns: False calls every plugin node by
        node: slower, with the same results. before: framework that this one follows; see
        `kept_plugin`.
        """
        self.profile = profile
        self.gates = gates
        self._columns = columns
        self.shared = HandleState() if shared is None else shared
        handle = Handle(gates, self.shared)
        weights = {use.name: use.weight for use in profile.points.get("score", ())}
        self.members: dict[str, RegisteredPlugin] = {}
        for name in profile.plugin_names():
            entry = registry[profile.aliases.get(name, name)]
            args = profile.args.get(name)
            given = {"args": entry.args() if args is None else args, "handle": handle}
            kept = before and kept_plugin(name, profile, before.profile, before.members)
            plugin = kept or construct_plugin(entry.plugin, given, in_tree=entry.in_tree)
            self.members[name] = self.registered_plugin_class(
                name,
                plugin,
                weights.get(name, 1),
                in_tree=entry.in_tree,
                columns=columns,
                divisor=profile.divisors.get(name, 1),
            )
        self._at: dict[str, tuple[RegisteredPlugin, ...]] = {
            point: tuple(self.members[use.name] for use in uses)
            for point, uses in profile.points.items()
        }
        if len(self.at("queueSort")) != 1:
            have = [m.name for m in self.at("queueSort")]
            raise ContractError(
                f"profile {profile.scheduler_name!r}: queueSort is {have}; expected one"
            )
        self._check_points()
        self.unused_pods_calls = calls_of(self.members.values(), "unused_pods")
        self._pre_bind_with_progress = tuple(
            m
            for m in self.at("preBind")
            if m.does_io or m.calls["pre_bind_pre_flight"] or m.calls["pre_bind_progress"]
        )
        # The plugin for which members of groups wait at Permit, "" for none.
        of_groups = (m.name for m in self.at("permit") if m.declaration.permits_groups)
        self.group_permit = next(of_groups, "")
        permits = (m for m in self.at("permit") if not m.declaration.permits_groups)
        between = (*self.at("reserve"), *permits, *self.at("preBind"))
        # Looked up in the skipped plugins, for a pod that has nothing to do before Bind.
        self._idle_when_skipped: frozenset[str] | None = None
        if all(m.rests_when_skipped for m in between):
            self._idle_when_skipped = frozenset(m.name for m in between)
        read = ReadAnnotations(one.declaration for one in self.members.values())
        self.annotations_of = read.of_pod
        signatures = (one.calls["claims_signature"] for one in self.members.values())
        self._claims_signatures = tuple(filter(None, signatures))
        binders = self.at("bind")
        is_sure = bool(binders) and binders[0].declaration.binds_all and not binders[0].does_io
        self.unconditional_binder: str = binders[0].name if is_sure else ""
        handle._framework = self

    def _check_points(self) -> None:
        for point, members in self._at.items():
            for member in members:
                if member.calls[EXTENSION_POINTS[point]] is None:
                    raise ContractError(
                        f"profile {self.profile.scheduler_name!r}: plugin {member.name!r} is "
                        f"enabled for {point} and has no {EXTENSION_POINTS[point]}(); expected one"
                    )

    def at(self, point: str) -> tuple[RegisteredPlugin, ...]:
        """Plugins at an extension point (configuration name), in call order."""
        return self._at.get(point, ())

    # Queue.

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        """True when `first` is to be scheduled before `second`."""
        return bool(self.at("queueSort")[0].call("less", first, second))

    def sort_key(self) -> Callable[[QueuedPod], Any] | None:
        """Sort key of the queue sort plugin, if it has one."""
        return self.at("queueSort")[0].calls["sort_key"]

    def run_pre_enqueue(self, pod: Pod) -> Status:
        """The first status that keeps the pod out of the queue, else OK."""
        for member in self.at("preEnqueue"):
            status: Status = member.call("pre_enqueue", pod)
            if not status.is_success:
                return status.by(member.name)
        return OK

    # Filtering.

    def run_pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> PreFilterOutcome:
        """Run all PreFilters; plugins that skip are added to `state.skip_filter`."""
        refusal = OK
        restrict: frozenset[str] | None = None
        restricting: list[str] = []
        for member in self.at("preFilter"):
            answer = member.call("pre_filter", pod, snapshot, state)
            if isinstance(answer, RestrictTo):
                restricting.append(member.name)
                restrict = answer.node_names if restrict is None else restrict & answer.node_names
                if not restrict:
                    return no_nodes_left(restricting)
            elif answer.is_skip:
                state.skip_filter.add(member.name)
            elif answer.code == Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return PreFilterOutcome(answer.by(member.name))
            elif answer.code == Code.UNSCHEDULABLE:
                refusal = answer.by(member.name)
            elif not answer.is_success:
                text = f'running PreFilter plugin "{member.name}": {answer.message}'
                return PreFilterOutcome(error(text).by(member.name))
        return PreFilterOutcome(refusal, restrict, tuple(restricting))

    def run_filters(
        self, pod: Pod, snapshot: Snapshot, state: CycleState, rows: Ints | None = None
    ) -> NodeToStatus:
        """The first rejection of every row (default: all), with nominated pods counted."""
        nodes, nominations = snapshot.nodes, snapshot.nominations
        if rows is None and not nominations.is_empty and not self.profile.checks_all_filters:
            key = self.row_key(pod, state)
            if key is not None:
                return RowVerdicts.of(nodes, key).follow(
                    snapshot,
                    nodes.row(nominations.node_of(pod.uid)),
                    [m.name for m in self._filters(state)],
                    lambda: self._run_filters(pod, snapshot, state, None),
                    lambda row: self.filter_with_nominated(pod, nodes.info(row), snapshot, state),
                )
        return self._run_filters(pod, snapshot, state, rows)

    def _run_filters(
        self, pod: Pod, snapshot: Snapshot, state: CycleState, rows: Ints | None
    ) -> NodeToStatus:
        nodes = snapshot.nodes
        everything = np.arange(nodes.n_nodes) if rows is None else rows
        members = self._filters(state)
        verdicts = NodeToStatus(everything, [m.name for m in members])
        places = everything if rows is None else np.arange(everything.shape[0])
        asked: Rows = nodes.all_rows if rows is None else rows
        for index, member in enumerate(members):
            alive = verdicts.by[places] == PASSED
            n_alive = np.count_nonzero(alive)
            # Fewer rows are worth an index only when most are rejected, or when each is a call.
            by_node = member.calls["filter_column"] is None
            if n_alive * 2 < alive.shape[0] or (by_node and n_alive < alive.shape[0]):
                places = places[alive]
                asked = everything[places]
            if places.shape[0] == 0:
                break
            verdicts.record(index, member.verdicts(pod, nodes, asked, state), places)
        if self.profile.checks_all_filters:
            join_refusals(verdicts, self.filters_separately(pod, nodes, everything, state))
        self._count_nominated(pod, snapshot, state, verdicts, rows)
        return verdicts

    def filters_separately(
        self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState
    ) -> dict[str, PluginVerdicts]:
        """The status of every filter for `rows`, not only the first rejection."""
        return {m.name: m.verdicts(pod, nodes, rows, state) for m in self._filters(state)}

    def scores_separately(
        self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState
    ) -> dict[str, Ints]:
        """The raw scores of every score plugin for `rows`, before normalization and weighting."""
        return {
            m.name: m.scores(pod, nodes, rows, state)
            for m in self.at("score")
            if m.name not in state.skip_score
        }

    def filter_node(self, pod: Pod, node: NodeInfo, state: CycleState) -> Status:
        """The first rejection of one node by the scalar filters, else OK."""
        for member in self._filters(state):
            status: Status = member.call("filter", pod, node, state)
            if not status.is_success:
                return as_refusal(status.by(member.name))
        return OK

    def filter_with_nominated(
        self, pod: Pod, node: NodeInfo, snapshot: Snapshot, state: CycleState
    ) -> Status:
        """Filter one node, first with its nominated pods added, then without.

        Both must pass: with them, so that their resources stay reserved; without them, so that the
        pod does not depend on pods that may be placed elsewhere.
        """
        nominated_pods = snapshot.nominations.counted(node.name, pod)
        status = self._filter_with_pods(pod, node, nominated_pods, state) if nominated_pods else OK
        return self.filter_node(pod, node, state) if status.is_success else status

    def _filter_with_pods(
        self, pod: Pod, node: NodeInfo, nominated_pods: Sequence[PodInfo], state: CycleState
    ) -> Status:
        """The first rejection of one node with other pods added, else OK."""
        node_with_pods, its_state = node.copy(), state.clone()
        for info in nominated_pods:
            node_with_pods.add_pod(info)
            status = self.run_add_pod(pod, info, node_with_pods, its_state)
            if not status.is_success:
                return status
        return self.filter_node(pod, node_with_pods, its_state)

    def run_add_pod(self, pod: Pod, info: Any, node: NodeInfo, state: CycleState) -> Status:
        """Run the AddPod extensions of `pod` for a pod added to `node`."""
        return self._run_pre_filter_extensions("add_pod", pod, info, node, state)

    def run_remove_pod(self, pod: Pod, info: Any, node: NodeInfo, state: CycleState) -> Status:
        """Run the RemovePod extensions of `pod` for a pod removed from `node`."""
        return self._run_pre_filter_extensions("remove_pod", pod, info, node, state)

    def run_post_filter(
        self, pod: Pod, snapshot: Snapshot, diagnosis: Diagnosis, state: CycleState
    ) -> PostFilterResult:
        """Run the PostFilters until one succeeds or waits; their messages are joined."""
        reasons: list[str] = []
        refused_by = ""
        nominated: str | None = None
        for member in self.at("postFilter"):
            result: PostFilterResult = member.call("post_filter", pod, snapshot, diagnosis, state)
            status = result.status.by(member.name)
            if status.is_success or status.code == Code.WAIT:
                return msgspec.structs.replace(result, status=status)
            if not status.is_rejected:
                return PostFilterResult(error(*status.reasons).by(member.name))
            reasons += status.reasons
            refused_by = refused_by or member.name
            if result.nominated_node is not None:
                nominated = result.nominated_node
            if status.code == Code.UNSCHEDULABLE_AND_UNRESOLVABLE:
                return msgspec.structs.replace(result, status=status)
        status = Status(Code.UNSCHEDULABLE, tuple(reasons), refused_by)
        return PostFilterResult(status, nominated)

    def note_preemption(self) -> None:
        """A preemption was decided by what a PostFilter keeps, without a call of it."""

    # Scoring.

    def run_pre_score(self, pod: Pod, snapshot: Snapshot, rows: Ints, state: CycleState) -> Status:
        """Run all PreScores; plugins that skip are added to `state.skip_score`."""
        asked = _as_rows(rows, snapshot.nodes)
        for member in self.at("preScore"):
            status: Status = member.call("pre_score", pod, snapshot, asked, state)
            if status.is_skip:
                state.skip_score.add(member.name)
            elif not status.is_success:
                text = f'running PreScore plugin "{member.name}": {status.message}'
                return error(text).by(member.name)
        return OK

    def run_scores(self, pod: Pod, nodes: NodeTable, rows: Ints, state: CycleState) -> Scores:
        """Score, normalize, weight and sum; raises ContractError for a score out of range."""
        asked = _as_rows(rows, nodes)
        raw: dict[str, Ints] = {}
        final: dict[str, Ints] = {}
        total = np.zeros(rows.shape[0], dtype=np.int64)
        for member in self.at("score"):
            if member.name in state.skip_score:
                continue
            scores = member.scores(pod, nodes, asked, state)
            normal = member.normalized(scores, pod, nodes, asked, state)
            self._check_range(member, normal, pod, nodes, rows)
            if member.divisor != 1:
                normal = normal // member.divisor
            raw[member.name] = scores
            final[member.name] = normal * member.weight
            total += final[member.name]
        return Scores(rows, raw, final, total)

    def claims_signature(self, pod: Pod) -> Hashable | None:
        """Equal for pods of one template whose claims are alike; None: looked at pod by pod."""
        for ask in self._claims_signatures:
            found: Hashable | None = ask(pod, self.shared.object_store)
            if found is not None:
                return found
        return None

    # After a node was chosen.

    def binds_directly(self, state: CycleState, reserved: frozenset[str] = frozenset()) -> bool:
        """True when no plugin has work for the pod before Bind, Permits of groups apart. reserved:
        plugins for which that is done already."""
        idle = self._idle_when_skipped
        return idle is not None and idle <= state.skip_filter | reserved

    goes_straight = deprecated_method("goes_straight", "binds_directly")

    def run_reserve(self, pod: Pod, node_name: str, state: CycleState) -> Status:
        """The first Reserve status that is not Success, else OK. The caller unreserves after a
        failure."""
        for member in self.at("reserve"):
            if member.is_idle(state):
                continue
            status = checked_status(
                "Reserve", member, member.call("reserve", pod, node_name, state)
            )
            if status is not OK:
                return status
        return OK

    def run_unreserve(self, pod: Pod, node_name: str, state: CycleState) -> None:
        """Run all Unreserves in reverse order.

        A plugin that breaks its contract does not stop the others; raises ContractError for the
        first one afterwards.
        """
        fault: ContractError | None = None
        for member in reversed(self.at("reserve")):
            if member.calls["unreserve"] is None or member.is_idle(state):
                continue
            try:
                member.call("unreserve", pod, node_name, state)
            except ContractError as broken:
                fault = fault or broken
        if fault is not None:
            raise fault

    def run_permit(
        self, pod: Pod, node_name: str, state: CycleState
    ) -> Status | dict[str, PermitWait]:
        """A rejection, OK, or the plugins that wait with their timeouts."""
        members = self.at("permit")
        if not members:
            return OK
        waiting: dict[str, PermitWait] = {}
        for member in members:
            answer = member.call("permit", pod, node_name, state)
            if isinstance(answer, PermitWait):
                timeout_s = min(answer.timeout_s, PERMIT_TIMEOUT_S_MAX)
                waiting[member.name] = PermitWait(timeout_s, answer.reason)
            elif answer.is_rejected:
                status: Status = answer.by(member.name)
                return status
            elif not answer.is_success:
                return error(f'running Permit plugin "{member.name}": {answer.message}').by(
                    member.name
                )
        return waiting or OK

    def run_pre_bind_pre_flight(self, pod: Pod, node_name: str, state: CycleState) -> Status:
        """OK when a PreBind plugin has work for the pod, Skip when none has, or an error.

        Plugins that skip are added to `state.skip_pre_bind`. A plugin without this method has work
        when it does I/O or may wait.
        """
        answer = SKIP
        for member in self._pre_bind_with_progress:
            if member.is_idle(state):
                state.skip_pre_bind.add(member.name)
                continue
            if member.calls["pre_bind_pre_flight"] is None:
                answer = OK
                continue
            status: Status = member.call("pre_bind_pre_flight", pod, node_name, state)
            if status.is_success:
                answer = OK
            elif status.is_skip:
                state.skip_pre_bind.add(member.name)
            elif status.code == Code.ERROR:
                return error(f'running PreBindPreFlight "{member.name}": {status.message}')
            else:
                return error(
                    f'PreBindPreFlight {member.name} returned "{status.code.title}", which is '
                    "unsupported. It is supposed to return Success, Skip, or Error status"
                )
        return answer

    def run_pre_bind_of(
        self, member: RegisteredPlugin, pod: Pod, node_name: str, state: CycleState
    ) -> Status | PreBindWait:
        """The status of one PreBind plugin, OK when it skips."""
        if member.is_idle(state) or member.name in state.skip_pre_bind:
            return OK
        answer: Status | PreBindWait = member.call("pre_bind", pod, node_name, state)
        if isinstance(answer, PreBindWait):
            return answer
        return checked_status("PreBind", member, answer)

    def run_pre_bind_progress(
        self,
        member: RegisteredPlugin,
        pod: Pod,
        node_name: str,
        snapshot: Snapshot,
        state: CycleState,
    ) -> Status:
        """OK when a PreBind plugin's wait is over, Wait while it is not, or a failure."""
        if member.calls["pre_bind_progress"] is None:
            return OK
        status: Status = member.call("pre_bind_progress", pod, node_name, snapshot, state)
        return status if status.code == Code.WAIT else checked_status("PreBind", member, status)

    def run_bind(self, pod: Pod, node_name: str, state: CycleState) -> Status:
        """The status of the first Bind plugin that does not skip; Skip when all skip."""
        status = SKIP
        for member in self.at("bind"):
            answer: Status = member.call("bind", pod, node_name, state)
            if answer is OK:
                return member.succeeded
            status = answer.by(member.name)
            if status.is_success or status.is_rejected:
                return status
            if not status.is_skip:
                text = f'running Bind plugin "{member.name}": {status.message}'
                return error(text).by(member.name)
        return status

    def run_post_bind(self, pod: Pod, node_name: str, state: CycleState) -> None:
        """Run all PostBinds."""
        for member in self.at("postBind"):
            member.call("post_bind", pod, node_name, state)

    # Internals.

    def _filters(self, state: CycleState) -> list[RegisteredPlugin]:
        return [m for m in self.at("filter") if m.name not in state.skip_filter]

    def filters_by_row(self, state: CycleState, known: str = "") -> list[RegisteredPlugin] | None:
        """The active filters of a pod, in order; None when one of them may depend on other rows, or
        has no column form. known: a plugin that reads only the row for this pod."""
        off = {*state.skip_filter, known}
        extended = (m for m in self.at("preFilter") if m.calls["add_pod"] or m.calls["remove_pod"])
        if not self._columns or any(m.name not in off for m in extended):
            return None
        members = self._filters(state)
        return members if all(m.name == known or m.reads_row_only(state) for m in members) else None

    def row_key(self, pod: Pod, state: CycleState) -> Hashable | None:
        """Cache key: equal for pods that get the same verdict on every row, with nominated pods
        counted; None when a verdict may depend on more than the row."""
        members = self.filters_by_row(state)
        if members is None:
            return None
        return (self, pod.priority, *((m.name, m.row_signature(pod, state)) for m in members))

    def _check_range(
        self, member: RegisteredPlugin, scores: Ints, pod: Pod, nodes: NodeTable, rows: Ints
    ) -> None:
        if scores.shape[0] and (scores.min() < 0 or scores.max() > SCORE_MAX):
            place = int(np.flatnonzero((scores < 0) | (scores > SCORE_MAX))[0])
            raise ContractError(
                f"profile {self.profile.scheduler_name!r}: plugin {member.name!r} scores "
                f"{scores[place]} on node {nodes.names[int(rows[place])]!r} for pod {pod.key!r}; "
                f"expected 0..{SCORE_MAX}{member.place('normalize_score', 'score_column', 'score')}"
            )

    def _count_nominated(
        self,
        pod: Pod,
        snapshot: Snapshot,
        state: CycleState,
        verdicts: NodeToStatus,
        asked: Ints | None,
    ) -> None:
        """Replace verdicts of nodes with nominated pods by those that count them."""
        nodes, nominations = snapshot.nodes, snapshot.nominations
        if nominations.is_empty:
            return
        own = nodes.row(nominations.node_of(pod.uid))
        members = self.filters_by_row(state)

        def filter_rows(rows: list[int]) -> Mapping[int, Status]:
            found: dict[int, Status] = {}
            if len(rows) >= MANY_ROWS and members is not None and can_filter_by_amounts(members):
                found = refusals_with_nominated_pods(pod, snapshot, rows, own, members, state)
                rows = [row for row in rows if row == own]
            for row in rows:
                nominated_pods = nominations.counted(nodes.names[row], pod)
                if not nominated_pods:
                    continue
                status = self._filter_with_pods(pod, nodes.info(row), nominated_pods, state)
                if not status.is_success:
                    found[row] = status
            return found

        key = self.row_key(pod, state)
        kept = NominatedVerdicts() if key is None else NominatedVerdicts.of(nodes, key)
        places, which = kept.follow(snapshot, filter_rows, own)
        if asked is not None:
            place_of = np.full(nodes.n_nodes, -1)
            place_of[asked] = np.arange(asked.shape[0])
            places = place_of[places]
            places, which = places[places >= 0], which[places >= 0]
        if places.shape[0]:
            verdicts.overrule_all(places, which, tuple(kept.statuses))

    def _run_pre_filter_extensions(
        self, method: str, pod: Pod, info: Any, node: NodeInfo, state: CycleState
    ) -> Status:
        for member in self.at("preFilter"):
            if member.calls[method] is None or member.name in state.skip_filter:
                continue
            status: Status = member.call(method, pod, info, node, state)
            if not status.is_success:
                verb = "AddPod" if method == "add_pod" else "RemovePod"
                return error(
                    f'running {verb} on PreFilter plugin "{member.name}": {status.message}'
                ).by(member.name)
        return OK


PERMIT_TIMEOUT_S_MAX = 15 * 60.0


def _as_rows(rows: Ints, nodes: NodeTable) -> Rows:
    """A slice of all rows when `rows` are all rows ascending, so that columns are views."""
    return nodes.all_rows if rows.shape[0] == nodes.n_nodes else rows
