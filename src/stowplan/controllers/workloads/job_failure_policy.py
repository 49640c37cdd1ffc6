"""Pod failure policy, success policy and back-off per index of a Job.

Source: kube-controller-manager v1.36, pkg/controller/job/pod_failure_policy.go, success_policy.go
and indexed_job_utils.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from stowplan.apis.machinery.strconv import uint_or_none
from stowplan.controller_runtime.object_index import PodFacts
from stowplan.controllers.workloads import completion_indexes
from stowplan.controllers.workloads.job_sync_state import (
    JOB_TRACKING_FINALIZER,
    JobSyncState,
    backoff_until,
    completion_index,
    finished_at,
)
from stowplan.objects.encoding.tree import Tree

INDEX_FAILURES_ANNOTATION = "batch.kubernetes.io/job-index-failure-count"
INDEX_IGNORED_ANNOTATION = "batch.kubernetes.io/job-index-ignored-failure-count"


@dataclass(frozen=True, slots=True)
class PodFailureVerdict:
    """What the policy says about a failed pod.

    action: of the rule that matched, "" for none. is_counted: False for Ignore. message: of a Job
    that fails because of it, "" otherwise.
    """

    action: str = ""
    is_counted: bool = True
    message: str = ""


_NO_RULE = PodFailureVerdict()


def match_pod_failure_policy(policy: Tree | None, pod: Tree) -> PodFailureVerdict:
    """The verdict of the first rule that matches a failed pod."""
    for at, rule in enumerate((policy or {}).get("rules") or ()):
        cause = (
            _exit_code_cause(rule, pod) if "onExitCodes" in rule else _condition_cause(rule, pod)
        )
        if cause:
            action = rule["action"]
            text = f"{cause} matching {action} rule at index {at}" if action == "FailJob" else ""
            return PodFailureVerdict(action, action != "Ignore", text)
    return _NO_RULE


def _exit_code_cause(rule: Tree, pod: Tree) -> str:
    """Text about the first container whose exit code matches; "" for none."""
    wanted = rule["onExitCodes"]
    status = pod.get("status") or {}
    for each in (
        *(status.get("containerStatuses") or ()),
        *(status.get("initContainerStatuses") or ()),
    ):
        ended = (each.get("state") or {}).get("terminated")
        code = ended.get("exitCode", 0) if ended else 0
        named = wanted.get("containerName") in (None, each["name"])
        if code and named and (code in wanted["values"]) == (wanted["operator"] == "In"):
            meta = pod["metadata"]
            place = f"{meta['namespace']}/{meta['name']}"
            return f"Container {each['name']} for pod {place} failed with exit code {code}"
    return ""


def _condition_cause(rule: Tree, pod: Tree) -> str:
    """Text about the first condition that matches; "" for none."""
    wanted = {(each["type"], each["status"]) for each in rule.get("onPodConditions") or ()}
    for each in (pod.get("status") or {}).get("conditions") or ():
        if (each["type"], each["status"]) in wanted:
            meta = pod["metadata"]
            return f"Pod {meta['namespace']}/{meta['name']} has condition {each['type']}"
    return ""


def match_success_policy(policy: Tree | None, completions: int, succeeded: set[int]) -> str:
    """The message of a Job whose success policy is met; "" if it is not."""
    if not succeeded:
        return ""
    for at, rule in enumerate((policy or {}).get("rules") or ()):
        count = rule.get("succeededCount")
        indexes = rule.get("succeededIndexes")
        if indexes is None:
            is_met = count is not None and len(succeeded) >= count
        else:
            wanted = completion_indexes.parse_indexes(indexes, completions)
            n_done = len(wanted & succeeded)
            is_met = bool(wanted) and (
                n_done == len(wanted) or (count is not None and n_done >= count)
            )
        if is_met:
            return f"Matched rules at index {at}"
    return ""


class JobFailures:
    """Failed pods of a Job in one sync, as its policies see them.

    failed_indexes: indexes without retries left; None without `backoffLimitPerIndex`. replaced: by
    index, the failed pod that the next pod of the index replaces; it keeps its finalizer until
    then, because its annotations count the failures of the index.
    """

    def __init__(self, state: JobSyncState, read: Callable[[PodFacts], Tree | None]) -> None:
        """read: the stored pod; None if it does not exist."""
        self._read = read
        self._policy: Tree | None = state.job["spec"].get("podFailurePolicy")
        self._limit: int | None = state.job["spec"].get("backoffLimitPerIndex")
        self._trees: dict[str, Tree] = {}
        self.failed_indexes: set[int] | None = None
        self.replaced: dict[int, PodFacts] = {}
        state.failed -= sum(not self.verdict(pod).is_counted for pod in state.new_failed)
        if self._limit is not None and state.is_indexed:
            self._find_failed_indexes(state)
            self._find_replaced(state)

    @property
    def is_per_index(self) -> bool:
        """True with `backoffLimitPerIndex`."""
        return self.failed_indexes is not None

    def verdict(self, pod: PodFacts) -> PodFailureVerdict:
        """The verdict about a failed pod."""
        if self._policy is None:
            return _NO_RULE
        return match_pod_failure_policy(self._policy, self._tree(pod))

    def fail_job_message(self, state: JobSyncState) -> str:
        """Message of a Job that fails because a rule FailJob matched; "" if none did."""
        if self._policy is None:
            return ""
        failed = (pod for pod in state.pods if state.counts_as_failed(pod))
        return next((text for pod in failed if (text := self.verdict(pod).message)), "")

    def failure(self, state: JobSyncState) -> tuple[str, str] | None:
        """Reason and message if too many indexes have failed; None otherwise."""
        n_failed = len(self.failed_indexes or ())
        most = state.job["spec"].get("maxFailedIndexes")
        if most is not None and n_failed > most:
            text = "Job has exceeded the specified maximal number of failed indexes"
            return "MaxFailedIndexesExceeded", text
        if n_failed and n_failed + len(state.indexes) >= (state.completions or 0):
            return "FailedIndexes", "Job has failed indexes"
        return None

    def index_ready_at(self, index: int) -> float:
        """When the next pod of an index may be created; 0.0: at once."""
        pod = self.replaced.get(index)
        if pod is None:
            return 0.0
        tree = self._tree(pod)
        return backoff_until(sum(self._counts(tree)) + 1, finished_at(tree))

    def annotations(self, index: int) -> dict[str, str]:
        """Annotations of the next pod of an index: the failures before it."""
        if not self.is_per_index:
            return {}
        failures, ignored = 0, 0
        pod = self.replaced.get(index)
        if pod is not None:
            is_counted = self.verdict(pod).is_counted
            failures, ignored = self._counts(self._tree(pod))
            failures, ignored = failures + is_counted, ignored + (not is_counted)
        found = {INDEX_FAILURES_ANNOTATION: str(failures)}
        return {**found, INDEX_IGNORED_ANNOTATION: str(ignored)} if ignored else found

    def _find_failed_indexes(self, state: JobSyncState) -> None:
        text = state.job["status"].get("failedIndexes") or ""
        self.failed_indexes = completion_indexes.parse_indexes(text, state.completions or 0)
        for pod in _tracked(state):
            if state.counts_as_failed(pod) and self._has_no_retry(pod):
                self.failed_indexes.add(completion_index(pod))

    def _has_no_retry(self, pod: PodFacts) -> bool:
        verdict = self.verdict(pod)
        if verdict.action == "FailIndex":
            return True
        failures, _ = self._counts(self._tree(pod))
        return verdict.is_counted and self._limit is not None and failures >= self._limit

    def _find_replaced(self, state: JobSyncState) -> None:
        settled = state.indexes | (self.failed_indexes or set())
        settled |= {completion_index(pod) for pod in state.active}
        last: dict[int, tuple[int, float]] = {}
        for pod in _tracked(state):
            index = completion_index(pod)
            if index in settled or not state.counts_as_failed(pod):
                continue
            tree = self._tree(pod)
            rank = (sum(self._counts(tree)), finished_at(tree))
            if index not in last or rank >= last[index]:
                last[index], self.replaced[index] = rank, pod

    def _tree(self, pod: PodFacts) -> Tree:
        if pod.uid not in self._trees:
            namespace, name = pod.key
            gone: Tree = {"metadata": {"namespace": namespace, "name": name}}
            self._trees[pod.uid] = self._read(pod) or gone
        return self._trees[pod.uid]

    @staticmethod
    def _counts(pod: Tree) -> tuple[int, int]:
        """Failures of the pod's index before it, counted and ignored."""
        notes = pod["metadata"].get("annotations") or {}
        failures = uint_or_none(notes.get(INDEX_FAILURES_ANNOTATION, ""))
        return failures or 0, uint_or_none(notes.get(INDEX_IGNORED_ANNOTATION, "")) or 0


def _tracked(state: JobSyncState) -> Iterable[PodFacts]:
    """Pods with a valid index that are not counted yet."""
    for pod in state.pods:
        is_valid = 0 <= completion_index(pod) < (state.completions or 0)
        if is_valid and JOB_TRACKING_FINALIZER in pod.finalizers:
            yield pod
