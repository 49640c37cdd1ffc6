"""Timed framework: records the duration of extension points and plugins.

An extension point is timed in every attempt, its plugins in one attempt of ten. Pods placed by
compiled kernels run neither and are not counted here.

Differs: a column call is one evaluation of a plugin, with its time for all nodes; the original
counts and times node by node. Every tenth attempt is a sample; the original samples at random.

Source: kube-scheduler v1.36, scheduler/metrics; framework/runtime.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from stowplan.columns import NodeTable, Rows
from stowplan.columns.array_types import Ints
from stowplan.framework.cycle_state import CycleState
from stowplan.framework.diagnosis import Diagnosis
from stowplan.framework.feature_gates import FeatureGates
from stowplan.framework.handle_state import HandleState
from stowplan.framework.metrics import Metrics
from stowplan.framework.node_to_status import NodeToStatus, PluginVerdicts
from stowplan.framework.plugin import PermitWait, PostFilterResult, PreBindWait
from stowplan.framework.profile import Profile
from stowplan.framework.runtime.framework import Framework
from stowplan.framework.runtime.outcomes import PreFilterOutcome
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin
from stowplan.framework.runtime.registry import Registry
from stowplan.framework.snapshot import Snapshot
from stowplan.framework.status import Code, Status
from stowplan.objects.pod import Pod

T = TypeVar("T")
Method = TypeVar("Method", bound=Callable[..., Any])

EVALUATIONS = "scheduler_plugin_evaluation_total"
PLUGIN_SECONDS = "scheduler_plugin_execution_duration_seconds"
POINT_SECONDS = "scheduler_framework_extension_point_duration_seconds"
PREEMPTIONS = "scheduler_preemption_attempts_total"
SAMPLED_EVERY = 10
PLUGIN_BUCKETS = tuple(0.00001 * 1.5**k for k in range(20))
POINT_BUCKETS = tuple(0.0001 * 2**k for k in range(12))

POINT_OF_METHOD = {
    "pre_filter": "PreFilter",
    "add_pod": "PreFilterExtensionAddPod",
    "remove_pod": "PreFilterExtensionRemovePod",
    "post_filter": "PostFilter",
    "pre_score": "PreScore",
    "reserve": "Reserve",
    "unreserve": "Unreserve",
    "permit": "Permit",
    "pre_bind_pre_flight": "PreBindPreFlight",
    "pre_bind": "PreBind",
    "bind": "Bind",
    "post_bind": "PostBind",
}
EVALUATED_METHODS = frozenset(("pre_filter", "pre_score"))
SUCCESS, ERROR = Code.SUCCESS.title, Code.ERROR.title


class FrameworkMetricsRecorder:
    """Metrics of one profile. sampling: whether plugins are timed in this attempt."""

    def __init__(self, metrics: Metrics, profile: str) -> None:
        self.metrics = metrics
        self.now = metrics.stopwatch
        self.profile = profile
        self.sampling = False
        self._n_attempts = 0

    def begin(self) -> None:
        """Start an attempt."""
        self.sampling = self._n_attempts % SAMPLED_EVERY == 0
        self._n_attempts += 1

    def evaluated(self, plugin: str, point: str) -> None:
        """Count an evaluation of a plugin."""
        labels = ("plugin", plugin), ("extension_point", point), ("profile", self.profile)
        self.metrics.count(EVALUATIONS, labels)

    def plugin(self, plugin: str, point: str, status: str, begun: float) -> None:
        """Record the duration of a plugin call."""
        labels = ("plugin", plugin), ("extension_point", point), ("status", status)
        self.metrics.observe(PLUGIN_SECONDS, self.now() - begun, labels, PLUGIN_BUCKETS)

    def point(self, point: str, status: str, begun: float) -> None:
        """Record the duration of an extension point."""
        labels = ("extension_point", point), ("status", status), ("profile", self.profile)
        self.metrics.observe(POINT_SECONDS, self.now() - begun, labels, POINT_BUCKETS)


class TimedRegisteredPlugin(RegisteredPlugin):
    """A plugin whose calls are counted and timed."""

    __slots__ = ("_recorder",)

    def record_to(self, recorder: FrameworkMetricsRecorder) -> None:
        """Record all calls to `recorder` from now on."""
        self._recorder = recorder

    def call(self, method: str, *values: Any) -> Any:
        """As in RegisteredPlugin."""
        point = POINT_OF_METHOD.get(method)
        if point is None:
            return super().call(method, *values)
        recorder = self._recorder
        begun = recorder.now() if recorder.sampling else 0.0
        answer = super().call(method, *values)
        if method in EVALUATED_METHODS and not (isinstance(answer, Status) and answer.is_skip):
            recorder.evaluated(self.name, point)
        if recorder.sampling:
            recorder.plugin(self.name, point, status_title(answer), begun)
        return answer

    def verdicts(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> PluginVerdicts:
        """As in RegisteredPlugin."""
        return self._column_timed("Filter", super().verdicts, pod, nodes, rows, state)

    def scores(self, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState) -> Ints:
        """As in RegisteredPlugin."""
        return self._column_timed("Score", super().scores, pod, nodes, rows, state)

    def normalized(
        self, scores: Ints, pod: Pod, nodes: NodeTable, rows: Rows, state: CycleState
    ) -> Ints:
        """As in RegisteredPlugin."""
        recorder = self._recorder
        if not recorder.sampling or self.calls["normalize_score"] is None:
            return super().normalized(scores, pod, nodes, rows, state)
        begun = recorder.now()
        answer = super().normalized(scores, pod, nodes, rows, state)
        recorder.plugin(self.name, "ScoreExtensionNormalize", SUCCESS, begun)
        return answer

    def _column_timed(self, point: str, walk: Callable[..., T], *asked: Any) -> T:
        recorder = self._recorder
        recorder.evaluated(self.name, point)
        if not recorder.sampling:
            return walk(*asked)
        begun = recorder.now()
        answer = walk(*asked)
        recorder.plugin(self.name, point, SUCCESS, begun)
        return answer


def _timed(method: Method, point: str) -> Method:
    """A method of Framework that records its duration and status as those of `point`."""

    @wraps(method)
    def timed(self: TimedFramework, *args: Any, **kwargs: Any) -> Any:
        begun = self._recorder.now()
        answer = method(self, *args, **kwargs)
        self._recorder.point(point, status_title(answer), begun)
        return answer

    return cast(Method, timed)


class TimedFramework(Framework):
    """A framework whose extension points are timed."""

    registered_plugin_class = TimedRegisteredPlugin

    def __init__(
        self,
        profile: Profile,
        registry: Registry,
        gates: FeatureGates,
        shared: HandleState | None,
        metrics: Metrics,
        before: Framework | None = None,
    ) -> None:
        """Raises ContractError."""
        super().__init__(profile, registry, gates, shared, before=before)
        self._recorder = FrameworkMetricsRecorder(metrics, profile.scheduler_name)
        for member in self.members.values():
            assert isinstance(member, TimedRegisteredPlugin)
            member.record_to(self._recorder)

    def run_pre_filter(self, pod: Pod, snapshot: Snapshot, state: CycleState) -> PreFilterOutcome:
        """As in Framework; starts an attempt."""
        self._recorder.begin()
        begun = self._recorder.now()
        outcome = super().run_pre_filter(pod, snapshot, state)
        self._recorder.point("PreFilter", status_title(outcome), begun)
        return outcome

    run_filters = _timed(Framework.run_filters, "Filter")
    run_pre_score = _timed(Framework.run_pre_score, "PreScore")
    run_scores = _timed(Framework.run_scores, "Score")
    run_reserve = _timed(Framework.run_reserve, "Reserve")
    run_unreserve = _timed(Framework.run_unreserve, "Unreserve")
    run_permit = _timed(Framework.run_permit, "Permit")
    # Without waiting for the binding request.
    run_bind = _timed(Framework.run_bind, "Bind")
    run_post_bind = _timed(Framework.run_post_bind, "PostBind")

    def note_preemption(self) -> None:
        """Count a preemption."""
        self._recorder.metrics.count(PREEMPTIONS)

    def run_post_filter(
        self, pod: Pod, snapshot: Snapshot, diagnosis: Diagnosis, state: CycleState
    ) -> PostFilterResult:
        """As in Framework; counts a preemption."""
        begun = self._recorder.now()
        self.note_preemption()
        result = super().run_post_filter(pod, snapshot, diagnosis, state)
        self._recorder.point("PostFilter", status_title(result), begun)
        return result


def status_title(answer: Any) -> str:
    """Status label of any kind of result; what has no status succeeded."""
    if isinstance(answer, PreFilterOutcome | PostFilterResult):
        answer = answer.status
    if isinstance(answer, Status):
        return answer.code.title
    if isinstance(answer, NodeToStatus):
        return ERROR if answer.errors else SUCCESS
    waits = isinstance(answer, PermitWait | PreBindWait | dict)
    return Code.WAIT.title if waits else SUCCESS
