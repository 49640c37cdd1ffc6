"""The plugin contract: what a plugin may implement, when it is called, what its answers cause.

A plugin is a class with a declaration (`Plugin`), or a `name` as its short form, and a method per
extension point that it implements; it needs no base class. `Args` (a msgspec Struct with defaults)
declares its configuration, and the constructor takes `args` and `handle`, either or none of them.

Methods are called by parameter *name*: each protocol below lists all parameters, and a method may
leave out those that it does not need (`def score(self, node)` is complete). Unknown names are
refused at registration.

Each rule has two forms. The scalar methods (`filter`, `score`) are the contract: explain, queueing
hints and preemption call them. The column methods (`filter_column`, `score_column`) return the same
answers for many nodes at once; they are optional, and without them the runtime calls the scalar
method for each node. A plugin with column methods must have the scalar ones too;
`stowplan.testing.check_plugin` compares them.

The most common misuse is keeping state on `self` between pods. Data of one attempt belongs in the
CycleState; a plugin object is shared by all attempts. No method may wait, do I/O, read a clock or
use a random generator.

Source: kube-scheduler v1.36, framework interface and runtime.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from stowplan._deprecated import deprecated_names
from stowplan.columns import NodeInfo, NodeTable, PodInfo, Rows
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.deciders.kernel_terms import KernelTerm, PeerAffinityTerms
from stowplan.framework.diagnosis import Diagnosis
from stowplan.framework.object_store import ObjectChange, ObjectStore
from stowplan.framework.problems import ContractError, did_you_mean
from stowplan.framework.snapshot import Snapshot
from stowplan.framework.status import Status
from stowplan.objects.meta import Object
from stowplan.objects.pod import Pod

SCORE_MAX = 100
"""The highest score of a node after NormalizeScore; the lowest is 0."""

NORMALIZES = ("", "highest", "reversed")
"""What `Plugin.normalizes` may be."""


class _PluginMeta(msgspec.StructMeta):
    """Refuses unknown fields by name; a Struct's own error names no field that is near."""

    def __call__(self, *args: Any, **fields: Any) -> Any:
        for field in fields:
            if field not in self.__struct_fields__:
                hint = did_you_mean(field, self.__struct_fields__)
                raise ContractError(f"unknown field {field!r}{f' ({hint})' if hint else ''}")
        return super().__call__(*args, **fields)


class Plugin(msgspec.Struct, frozen=True, kw_only=True, metaclass=_PluginMeta):
    """The declaration of a plugin: what it is, and what the framework may rely on.

    A plugin class has it as `declaration = Plugin(name=..., ...)`, or gives the fields that it
    needs as class attributes of the same names. A plugin whose declaration depends on its arguments
    sets `self.declaration` in its constructor. What is not declared is not relied on.

    name: the name in configurations. weight: of its scores, where a configuration names none.
    reads: the kinds beside nodes and pods that its answers depend on; a scheduler watches them.
    None: unknown, so any change of an object may change its answers.
    row_local: for one `signature`, `filter_column` and `score_column` read nothing but the row
    itself, so columns are kept and evaluated again for changed rows only. node_only: its answers
    read nodes and never the pods on them.
    by_outline: `applies_to`, and what a node_only plugin answers, read of a pod the spec only, and
    not the resources of its containers: it is asked once for pods that differ in other things.
    reads_no_requests: `applies_to` and `kernel_terms` read nothing of the resources of containers.
    by_amounts: of the pods on a node, `filter_column` reads `pod_count` and `requested` only.
    scores_by_amounts: of a node, `score_column` reads amounts only, and is not normalized.
    stable_codes: codes of `filter_column` mean the same in every attempt, whatever has changed.
    filters_resources: its Filter compares requests with free resources, which sessions do alone.
    repeatable: its answers depend on the pod, the snapshot and the cycle state only; it keeps no
    state of its own. A refusal is then repeated without a call for equal pods and snapshots.
    cross_node: any pod that is bound in the namespace may turn its refusal, on whichever node.
    normalizes: how `normalize_score` works where it reads nothing of the other nodes but the
    highest raw score: "highest" for percentages of it, "reversed" for 100 minus these, "" for any
    other way. whole_list: a priority that scores all nodes in one call.
    rests_when_skipped: Score in sessions, Reserve, Unreserve and PreBind have nothing to do for a
    pod that its PreFilter skipped. permits_groups: its Permit concerns members of groups only, and
    lets a group pass as soon as `minCount` members have a node; its PreEnqueue and its hints answer
    alike for all members of a group. binds_all: its Bind never answers Skip and never fails.
    takes_ignored_resources: its `ignored_resources` are those that configured extenders manage.
    perform_timeout_s: seconds that `perform` may take; None: the scheduler's default, 600.
    perform_in_parallel: `perform` at PreBind runs beside that of adjacent plugins that declare it.
    simulated_s: virtual seconds that `perform` takes in a simulation; None: the default, 1.
    gates_by_outline: what its PreEnqueue keeps out follows from specs without requests and groups.
    gates_preempting: of pods without a group, its PreEnqueue keeps out those whose uid is in
    `handle.shared.preempting`, and no others. reads_annotations: keys of a pod's annotations that
    answers depend on. reads_annotations_with: (key, further keys) read only beside the first one.
    """

    name: str
    weight: int = 1
    reads: tuple[type[Object], ...] | None = None
    row_local: bool = False
    node_only: bool = False
    by_outline: bool = False
    reads_no_requests: bool = False
    by_amounts: bool = False
    scores_by_amounts: bool = False
    stable_codes: bool = False
    filters_resources: bool = False
    repeatable: bool = False
    cross_node: bool = False
    normalizes: str = ""
    whole_list: bool = False
    rests_when_skipped: bool = False
    permits_groups: bool = False
    binds_all: bool = False
    takes_ignored_resources: bool = False
    perform_timeout_s: float | None = None
    perform_in_parallel: bool = False
    simulated_s: float | None = None
    gates_by_outline: bool = False
    gates_preempting: bool = False
    reads_annotations: tuple[str, ...] = ()
    reads_annotations_with: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __set_name__(self, owner: type[Any], _: str) -> None:
        """Give the class its `name`, which Python code reads, where it does not set it itself."""
        if "name" not in vars(owner):
            owner.name = self.name

    def __post_init__(self) -> None:
        """Check the types and ranges of the fields; raises ContractError."""
        for field, value, expected in _invalid_fields(self):
            raise ContractError(f"{field}: Invalid value: {value!r}: expected {expected}")


def _invalid_fields(declared: Plugin) -> Iterator[tuple[str, object, str]]:
    """(field, value, what is allowed) of each field that is out of range."""
    # Any: the annotations are promises, and this is where they are checked.
    name: Any = declared.name
    weight: Any = declared.weight
    reads: Any = declared.reads
    if not isinstance(name, str) or not name:
        yield "name", name, "a non-empty string"
    if isinstance(weight, bool) or not isinstance(weight, int) or weight < 1:
        yield "weight", weight, "a whole number above 0"
    is_tuple = isinstance(reads, tuple)
    if reads is not None and not (is_tuple and all(isinstance(kind, type) for kind in reads)):
        yield "reads", reads, "a tuple of kinds, such as (Namespace,)"
    keys: Any = declared.reads_annotations
    if not isinstance(keys, tuple) or not all(isinstance(key, str) for key in keys):
        yield "reads_annotations", keys, "a tuple of annotation keys"
    further: Any = declared.reads_annotations_with
    if not isinstance(further, tuple) or not all(map(_is_key_with_others, further)):
        yield "reads_annotations_with", further, "a tuple of (key, a tuple of further keys)"
    if declared.normalizes not in NORMALIZES:
        yield "normalizes", declared.normalizes, " or ".join(map(repr, NORMALIZES))
    for field in ("perform_timeout_s", "simulated_s"):
        seconds = getattr(declared, field)
        if seconds is None:
            continue
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not seconds >= 0:
            yield field, seconds, "seconds, 0 or more"
    for field, default in zip(
        declared.__struct_fields__[1:], declared.__struct_defaults__, strict=True
    ):
        value = getattr(declared, field)
        if isinstance(default, bool) and not isinstance(value, bool):
            yield field, value, "True or False"


def _is_key_with_others(value: Any) -> bool:
    return (
        isinstance(value, tuple)
        and len(value) == 2
        and isinstance(value[0], str)
        and isinstance(value[1], tuple)
        and all(isinstance(key, str) for key in value[1])
    )


class QueuedPod(msgspec.Struct):
    """A pending pod in the queue. added_at: nanoseconds, when it arrived or last failed."""

    pod: Pod
    added_at: float = 0.0


class RestrictTo(msgspec.Struct, frozen=True):
    """Result of PreFilter that restricts the pod to these node names, which need not exist.

    The sets of several plugins are intersected. An empty set rejects the pod.
    """

    node_names: frozenset[str]


class PostFilterResult(msgspec.Struct, frozen=True):
    """Result of PostFilter: a status, and the node that the pod is nominated to.

    nominated_node: None leaves the pod's nomination as it is, "" clears it. victims: pods to evict
    before the pod fits.
    """

    status: Status
    nominated_node: str | None = None
    victims: tuple[PodInfo, ...] = ()


@runtime_checkable
class PreEnqueuePlugin(Protocol):
    """Called when a pod is about to enter the active queue, and again before each re-entry."""

    def pre_enqueue(self, pod: Pod) -> Status:
        """Success admits the pod. Anything else keeps it out as gated, without an attempt, until an
        event that this plugin registered for. Must be cheap: it runs in the queue. Misuse: looking
        at nodes; whether a pod fits is decided by Filter."""


@runtime_checkable
class QueueSortPlugin(Protocol):
    """Orders the active queue. Exactly one per profile, the same one in every profile."""

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        """True when `first` is to be scheduled before `second`.

        Must be a strict order (never true both ways). `sort_key(queued)` may be given beside it
        and must sort the same way; the queue then compares keys and calls no method.
        """


@runtime_checkable
class PreFilterPlugin(Protocol):
    """Called once per attempt, in configured order, before any node is evaluated."""

    def pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> Status | RestrictTo:
        """Prepare what Filter reads, and reject pods that fit no node.

        Success: continue. RestrictTo: continue with these nodes only. Skip: this plugin's Filter,
        AddPod and RemovePod are not called for this pod. UnschedulableAndUnresolvable: the attempt
        ends, all nodes rejected. Unschedulable: the other PreFilters still run, then the attempt
        ends. Anything else ends the attempt as an error. Misuse: computing per node here what a
        column can hold.
        """


@runtime_checkable
class PreFilterExtensions(Protocol):
    """Keeps PreFilter's result valid while pods are added to or removed from a node in a dry
    run."""

    def add_pod(self, pod: Pod, info: PodInfo, node: NodeInfo, state: CycleState) -> Status:
        """`info` has just been added to `node`; update what PreFilter of `pod` wrote.

        Called on a clone of the state. Anything but Success ends the attempt as an error.
        """

    def remove_pod(self, pod: Pod, info: PodInfo, node: NodeInfo, state: CycleState) -> Status:
        """`info` has just been removed from `node`; the reverse of `add_pod`."""


@runtime_checkable
class FilterPlugin(Protocol):
    """Decides whether a pod can run on a node."""

    def filter(self, pod: Pod, node: NodeInfo, state: CycleState) -> Status:
        """Success: yes. Unschedulable: no, but evicting pods from the node may help.
        UnschedulableAndUnresolvable: no, and no eviction can help; preemption skips the node.
        Anything else ends the attempt as an error. The first plugin in configured order that
        rejects a node gives the reason. Misuse: returning Unschedulable for what evictions cannot
        change (labels, taints), which makes preemption try nodes for nothing."""


@runtime_checkable
class FilterColumn(Protocol):
    """The column form of Filter."""

    def filter_column(
        self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState
    ) -> NDArray[np.bool_] | NDArray[np.int64]:
        """Verdicts on `rows`, in their order: bool or int64 (n_rows,).

        bool: True where the node passes; the status of others is the plugin's attribute `REJECTED`.
        int64: 0 where the node passes, else a code that `filter_status(code)` turns into a status.
        A method without `rows` returns an answer for all nodes. Misuse: returning a view of a
        column of `nodes`, or writing into one.
        """


@runtime_checkable
class PostFilterPlugin(Protocol):
    """Called in configured order when no node passed, to make the pod fit (preemption).

    A plugin may have `may_help(pod, snapshot)`: False where `post_filter` can only refuse the pod,
    for reasons that the filters gave. A repeated refusal then needs no call.
    """

    def post_filter(
        self, pod: Pod, snapshot: Snapshot, diagnosis: Diagnosis, state: CycleState
    ) -> PostFilterResult:
        """Success: the pod can be made to fit; later plugins are not called, and the pod waits for
        its next attempt. Unschedulable: no help, the next plugin is called. Wait: extenders have to
        be called first (see `review`); all plugins are called again with their answer. Any other
        code ends PostFilter."""


@runtime_checkable
class PreScorePlugin(Protocol):
    """Called once per attempt, when more than one node passed, before scoring."""

    def pre_score(self, pod: Pod, snapshot: Snapshot, rows: Rows, state: CycleState) -> Status:
        """Prepare what Score reads. rows: the nodes that passed. Skip: this plugin does not score
        the pod and adds nothing. Anything else but Success ends the attempt as an error.
        """


@runtime_checkable
class ScorePlugin(Protocol):
    """Scores the nodes that passed the filters."""

    def score(self, pod: Pod, node: NodeInfo, state: CycleState, nodes: NodeTable) -> int:
        """Any int64; after `normalize_score`, where there is one, 0 to SCORE_MAX.

        nodes: all nodes, for scores that depend on other nodes.

        The result times the plugin's weight is added to the node's total. Misuse: returning a
        fraction; scores are whole numbers.
        """


@runtime_checkable
class ScoreColumn(Protocol):
    """The column form of Score."""

    def score_column(
        self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState
    ) -> NDArray[np.int64]:
        """int64 (n_rows,): `score` of each of `rows`, in their order."""


@runtime_checkable
class ScoreExtensions(Protocol):
    """Scales a plugin's scores of one pod to 0..SCORE_MAX, given all of them."""

    def normalize_score(
        self, scores: NDArray[np.int64], pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState
    ) -> NDArray[np.int64]:
        """int64 (n_rows,): the final scores. `scores` must not be changed in place."""


@runtime_checkable
class ReservePlugin(Protocol):
    """Reserves what the pod will use on the chosen node, before binding."""

    def reserve(self, pod: Pod, node_name: str, state: CycleState) -> Status:
        """Called in configured order once a node is chosen. Anything but Success: every plugin's
        `unreserve` is called and the pod goes back to the queue."""

    def unreserve(self, pod: Pod, node_name: str, state: CycleState) -> None:
        """Undo `reserve`. Called in reverse order, also for plugins whose `reserve` did not run, so
        it must be harmless then, and harmless twice.

        A plugin that declares `rests_when_skipped` is not called at Reserve, Unreserve and PreBind
        for pods that its PreFilter skipped.
        """


class PermitWait(msgspec.Struct, frozen=True):
    """Permit's result "wait": another pod or plugin must allow this pod. timeout_s: at most.
    reason: what it waits for."""

    timeout_s: float
    reason: str = ""


@runtime_checkable
class PermitPlugin(Protocol):
    """Last extension point before the binding cycle: approve, reject or wait."""

    def permit(self, pod: Pod, node_name: str, state: CycleState) -> Status | PermitWait:
        """Success approves. A rejection unreserves the pod and requeues it. PermitWait holds the
        pod on its node until it is allowed, rejected or timed out (15 minutes at most); the other
        plugins are still called."""


class PreBindWait(msgspec.Struct, frozen=True):
    """PreBind's result "not yet": objects to write, and then to wait for.

    changes: written one after the other; the first that the API refuses fails the attempt.
    timeout_s: how long `pre_bind_progress` may return Wait after the last write. late: the reason
    of the timeout. event: (reason, note) of an event of the pod that is recorded after the last
    write; () for none.
    """

    changes: tuple[ObjectChange, ...] = ()
    timeout_s: float = 600.0
    late: str = "timed out"
    event: tuple[str, str] | tuple[()] = ()


@runtime_checkable
class PreBindPlugin(Protocol):
    """Work to be done before the pod is bound (attach a volume, allocate a claim)."""

    def pre_bind(self, pod: Pod, node_name: str, state: CycleState) -> Status | PreBindWait:
        """Called in configured order. Success: continue. PreBindWait: write objects, then call
        `pre_bind_progress`. Anything else unreserves the pod and requeues it with backoff, whatever
        the code: plugins that reject pods do so at Permit at the latest. Misuse: waiting here; use
        PreBindWait or `perform`."""


@runtime_checkable
class PreBindProgress(Protocol):
    """Reports whether the work started by PreBind is done."""

    def pre_bind_progress(
        self, pod: Pod, node_name: str, snapshot: Snapshot, state: CycleState
    ) -> Status:
        """Called after PreBindWait, as soon as the cluster shows all that was written, and again
        whenever a node or an object beside nodes and pods has changed. Success: done. Wait: not
        yet. Anything else fails the attempt as in `pre_bind`. Without this method a plugin only
        waits until its changes are written.

        snapshot: the current cluster state. Misuse: reading with `object_store.find` what another
        pod only assumed; `object_store.observed` returns the observed object.
        """


@runtime_checkable
class PreBindPreFlight(Protocol):
    """Tells, before the pod waits at Permit, whether PreBind has work for it."""

    def pre_bind_pre_flight(self, pod: Pod, node_name: str, state: CycleState) -> Status:
        """Success: there is work, so the node is written to status.nominatedNodeName. Skip: the
        plugin's PreBind is not called for this pod. Error: the attempt fails. Other codes are
        errors. Misuse: doing the work here.
        """


@runtime_checkable
class BindPlugin(Protocol):
    """Binds the pod to the node."""

    def bind(self, pod: Pod, node_name: str, state: CycleState) -> Status:
        """Called in configured order until one does not answer Skip; that one binds the pod.

        Success: the pod is bound through the API, or by `perform` where the plugin has it. Anything
        else: the pod returns to the queue. At least one plugin of a profile must bind. A plugin
        that always answers Success declares `binds_all`.
        """


@runtime_checkable
class Perform(Protocol):
    """I/O of PreBind, Bind or PostBind: the only place for it.

    `perform_timeout_s` of the declaration limits it. With `perform_in_parallel` it runs at PreBind
    beside that of adjacent plugins in the configured order that declare it too; others run one
    after the other. Both hold for PreBindWait as well.
    """

    async def perform(self, ctx: Any) -> None:
        """Run by the driver after the plugin's method at that extension point returned Success.

        ctx: has `pod`, `node_name`, `state` and `point` (preBind, bind or postBind). Raising an
        exception is a failure: before Bind the pod is unreserved and requeued with backoff; at Bind
        the pod is read first, as it may be bound; after Bind it has no effect. The call is
        cancelled when the pod is deleted, preempted, or at the timeout. Misuse: changing what other
        attempts read; results must come back through the watch.
        """


@runtime_checkable
class PostBindPlugin(Protocol):
    """Called after a pod was bound."""

    def post_bind(self, pod: Pod, node_name: str, state: CycleState) -> None:
        """Informational; it cannot affect the pod."""


@runtime_checkable
class EnqueueExtensions(Protocol):
    """Lists the cluster events that can make a rejected pod schedulable."""

    def events_to_register(self) -> Sequence[Any]:
        """The events, each with an optional hint. A pod that this plugin rejected is requeued only
        after one of them. A plugin without this method receives every event. Misuse: leaving out an
        event, which leaves pods unschedulable until the five-minute flush."""


@runtime_checkable
class SignPlugin(Protocol):
    """Lets pods that are equal to this plugin share its answers."""

    def signature(self, pod: Pod) -> object:
        """A hashable that is equal for two pods exactly when every answer of this plugin would be
        equal for them on every cluster.

        With a signature, a plugin whose `filter_column` and `score_column` read nothing but the
        row itself may declare `row_local`: its columns are kept per signature and evaluated again
        for changed rows only. Pods of one signature also share the codes of `filter_column`, so
        `filter_status` must not distinguish them; dry runs of preemption are kept too. With
        `by_amounts` beside it, `filter_column` reads of the pods on nodes `pod_count` and
        `requested` only, and pods nominated to many nodes are counted at once. Misuse: declaring it
        where the answer for a node depends on other nodes, other objects or the cycle state.
        """


@runtime_checkable
class AppliesToPlugin(Protocol):
    """Tells which pods a plugin has nothing to do for."""

    def applies_to(self, pod: Pod) -> bool:
        """False where every extension point of the plugin leaves the pod alone: PreFilter and
        PreScore skip it, Filter passes every node, PreEnqueue, Reserve, Permit and PreBind succeed
        without effect.

        The answer must depend on the pod's spec only, and not on the names of claims in it; the
        plugin is then not called for pods of that spec. Plugins without this method apply to every
        pod. Misuse: reading labels, annotations, nodes or other objects.
        """


@runtime_checkable
class KernelTermsPlugin(Protocol):
    """States a plugin's rule as values that compiled kernels evaluate."""

    def kernel_terms(
        self, pod: Pod, snapshot: Snapshot, peers: PeerAffinityTerms
    ) -> tuple[KernelTerm, ...] | None:
        """Terms that are equivalent to the plugin's methods for `pod`; None where no terms are.

        peers: pods that may be placed beside it. Called once per class of pods and revision of the
        other objects, not per attempt. Values in a term must not change; only `TopologyTerm.counts`
        is read again. Misuse: terms that differ from `filter` or `score` for some node.
        """


@runtime_checkable
class ClaimsSignaturePlugin(Protocol):
    """Tells which pods of a template have claims that are alike."""

    def claims_signature(self, pod: Pod, object_store: ObjectStore) -> Hashable | None:
        """Equal for pods whose claims all plugins of the profile treat alike; None where the claims
        of the pod have to be looked at by name. One plugin has it for each kind of claims.

        Called for every pod with claims that may be placed by kernels. All that is read of claims
        and other objects must be part of it: terms of the class are not made anew when they change.
        """


@runtime_checkable
class Explain(Protocol):
    """Details of a rejection: what the pod requires and what the node has; of a plugin that scores
    and does not filter, what its score rests on."""

    def explain(self, pod: Pod, node: NodeInfo, state: CycleState) -> Sequence[str]:
        """Called when a user asks why: for a node that this plugin's `filter` rejects, or, where it
        has no `filter`, for one that it has scored.

        One short text per cause, requirement first: "cpu: needs 2000m, 1500m free of 4000m".
        """


@runtime_checkable
class ExplainColumn(Protocol):
    """The details of many rejections at once."""

    def explain_column(
        self, pod: Pod, nodes: NodeTable, rows: NDArray[np.int64], state: CycleState
    ) -> list[list[str]]:
        """`explain` of each row, in their order; of a plugin that has `explain`, too.

        rows: int64 (n_rows,). Called once for all nodes that this plugin's `filter` rejects.
        """


_OLD_NAMES = {
    "Bind": "BindPlugin",
    "EventsToRegister": "EnqueueExtensions",
    "Filter": "FilterPlugin",
    "NormalizeScore": "ScoreExtensions",
    "Permit": "PermitPlugin",
    "PostBind": "PostBindPlugin",
    "PostFilter": "PostFilterPlugin",
    "PreBind": "PreBindPlugin",
    "PreEnqueue": "PreEnqueuePlugin",
    "PreFilter": "PreFilterPlugin",
    "PreScore": "PreScorePlugin",
    "QueueSort": "QueueSortPlugin",
    "Reserve": "ReservePlugin",
    "Score": "ScorePlugin",
    "SignPod": "SignPlugin",
}
if not TYPE_CHECKING:
    __getattr__ = deprecated_names(__name__, _OLD_NAMES)
