"""Questions about a live cluster, answered in threads on a copy: nothing is ever written.

The objects are those of the watches, as `stowplan explain`, `queues` and `what-if` list them.
"""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from stowplan.assembly import frameworks_for
from stowplan.assembly.deciders import Deciders
from stowplan.columns.overlay import Overlay
from stowplan.cycle.explanation import Explanation
from stowplan.cycle.explanation import explain as explain_attempt
from stowplan.driver.client.credentials import CredentialError
from stowplan.driver.client.one_shot_requests import ServerUnreachable
from stowplan.forecast.explain_job import JobExplanation, explain_job
from stowplan.forecast.queue_shares import shares_of
from stowplan.forecast.what_if.questions import WhatIfOptions, answer, question_of
from stowplan.framework import (
    ConfigError,
    ContractError,
    Framework,
    Nominations,
    ObjectStore,
    Snapshot,
)
from stowplan.inputs.cluster_reader import Cluster
from stowplan.inputs.input_error import InputError
from stowplan.insight.changes.search import find_changes
from stowplan.insight.group_members import know_cluster
from stowplan.insight.what_if.requested_changes import RequestedChange, requests_of
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.simulation.session_runner import SessionRunner
from stowplan.web.model.followed_table import FollowedTable
from stowplan.web.model.grouped_why import EXAMPLES_MAX, why_tree
from stowplan.web.model.queue_history import QueueHistory
from stowplan.web.model.queue_tree import (
    gang_of,
    gang_trees,
    kueue_tree,
    shares_tree,
    workload_trees,
)
from stowplan.web.serving.page_source import BadRequest, NotFound, Unavailable

if TYPE_CHECKING:
    # At run time Kueue's parts are imported where it is configured.
    from stowplan.batch.queue_models.kueue.kueue_options import KueueOptions
    from stowplan.batch.queue_models.kueue.reports.workload_reports import KueueReport

WHAT_IFS_MAX = 2
"""Computed at the same time."""
CHANGES_MAX = 100
REFUSED_KINDS = ("config", "plugin", "submit")
"""Kinds of changes that name files of the server."""
ADMITTED_ALONE = "changes: queue: changes of Kueue's quota go together with delete only"
USER_ERRORS = (InputError, ConfigError, ContractError)


class ObjectsAtOnce(msgspec.Struct):
    """All objects of a cluster at one time."""

    nodes: list[Node]
    pods: list[Pod]
    others: list[Object]

    @classmethod
    def of(cls, objects: Iterable[Object]) -> ObjectsAtOnce:
        """By kind."""
        found = cls([], [], [])
        for one in objects:
            match one:
                case Pod():
                    found.pods.append(one)
                case Node():
                    found.nodes.append(one)
                case _:
                    found.others.append(one)
        return found

    def cluster(self) -> Cluster:
        """As the commands read it."""
        return Cluster(self.nodes, self.pods, self.others)

    def pod(self, key: str) -> Pod:
        """A pod by NAMESPACE/NAME; raises NotFound."""
        for pod in self.pods:
            if pod.key == key:
                return pod
        namespace, _, name = key.partition("/")
        raise NotFound(f'pods "{name}" not found in namespace "{namespace}"')


class ClusterQuestions:
    """Answers by one scheduler configuration. queues_s: what the last computation of queues
    took."""

    def __init__(self, deciders: Deciders, kueue_objects: Callable[[], list[Tree]] = list) -> None:
        """kueue_objects: lists Kueue's objects as they are stored; may raise ServerUnreachable."""
        self.deciders = deciders
        self._kueue_objects = kueue_objects
        self.history = QueueHistory()
        self.queues_s = 0.0
        self._table = FollowedTable()
        self._frameworks: dict[str, Framework] | None = None
        self._explaining = asyncio.Lock()
        self._computing = asyncio.Lock()
        self._n_what_ifs = 0

    # Why.

    async def why(self, key: str, objects: ObjectsAtOnce, *, quickly: bool = False) -> Tree:
        """See `GET pods/NAMESPACE/NAME/why`. quickly: without changes where sessions decide, which
        must be run for each. Raises NotFound and Unavailable."""
        pod = objects.pod(key)
        async with self._explaining:
            tree = await asyncio.to_thread(self._why, pod, objects, quickly=quickly)
        gang = gang_of(pod, objects.others, objects.pods)
        return {**tree, "gang": gang, "queue": "" if gang is None else gang["queue"]}

    async def refusals(self, key: str, node: str, objects: ObjectsAtOnce) -> list[Tree]:
        """Rules that refuse a node for a pod. Raises NotFound and Unavailable."""
        pod = objects.pod(key)
        async with self._explaining:
            found = await asyncio.to_thread(self._explained, pod, objects, changes=False)
        one = next((entry for entry in found.nodes if entry.name == node), None)
        if one is None or one.first is None:
            return []
        return [
            {
                "rule": refusal.plugin,
                "code": refusal.code,
                "reasons": list(refusal.reasons),
                "details": list(refusal.details),
            }
            for refusal in one.failing or (one.first,)
        ]

    def _why(self, pod: Pod, objects: ObjectsAtOnce, *, quickly: bool) -> Tree:
        batch = self.deciders.batch
        if batch is not None and pod.spec.scheduler_name in batch.scheduler_names:
            try:
                cluster = objects.cluster()
                searches = not quickly
                found = explain_job(pod.key, cluster, config=self.deciders, changes=searches)
            except USER_ERRORS as problem:
                raise Unavailable(str(problem)) from None
            tree = job_tree(found)
            return tree | {"changes": None} if quickly and found.state == "pending" else tree
        return why_tree(self._explained(pod, objects, changes=True))

    def _explained(self, pod: Pod, objects: ObjectsAtOnce, *, changes: bool) -> Explanation:
        """The explanation on a table that follows the cluster; a bound pod is taken out of it
        meanwhile."""
        framework = self._framework(pod.spec.scheduler_name)
        table = self._table.follow(objects.nodes, objects.pods)
        waiting = (one for one in objects.pods if one.status.nominated_node_name)
        nominated = Nominations(one for one in waiting if not one.node_name)
        snapshot = Snapshot(table, ObjectStore(objects.others), nominated)
        know_cluster(framework, objects.pods, snapshot.object_store)
        row = table.row_of_pod(pod.uid)
        try:
            with Overlay(table) as overlay:
                if row >= 0:
                    overlay.take(pod.uid, row)
                found = explain_attempt(pod, snapshot, framework)
                if changes and found.state == "pending" and not found.node:
                    searched = find_changes(pod, snapshot, framework)
                    found = msgspec.structs.replace(
                        found, changes=searched.changes, not_searched=searched.not_searched
                    )
        except ContractError as problem:
            raise Unavailable(str(problem)) from None
        return found

    def _framework(self, name: str) -> Framework:
        if self._frameworks is None:
            deciders = self.deciders
            self._frameworks = frameworks_for(
                deciders.configuration, deciders.registry, deciders.gates
            )
        found = self._frameworks.get(name)
        if found is None:
            raise Unavailable(f'pods with schedulerName "{name}" are not decided here')
        return found

    # Queues.

    async def queues(self, objects: ObjectsAtOnce, now: float) -> Tree:
        """See `GET queues`, without history. now: milliseconds since 1970. Raises Unavailable."""
        async with self._computing:
            begun = time.monotonic()
            try:
                tree = await asyncio.to_thread(self._queues, objects)
            except USER_ERRORS as problem:
                raise Unavailable(str(problem)) from None
            self.queues_s = time.monotonic() - begun
        self.history.add(now, tree["schedulers"])
        return {"time": now, **tree}

    def _queues(self, objects: ObjectsAtOnce) -> Tree:
        schedulers: list[Tree] = []
        if self.deciders.batch is not None:
            runner = SessionRunner(objects.cluster(), self.deciders)
            is_model = runner.is_queue_model
            schedulers.append(shares_tree(shares_of(runner), objects.others, is_model=is_model))
        gangs = gang_trees(objects.others, objects.pods)
        if self.deciders.kueue is not None:
            report = self._kueue_report(objects, self.deciders.kueue)
            schedulers.append(kueue_tree(report))
            gangs += workload_trees(report, objects.pods)
        return {"schedulers": schedulers, "gangs": gangs}

    def _kueue_report(self, objects: ObjectsAtOnce, options: KueueOptions) -> KueueReport:
        """What `stowplan queues` reports of a live cluster. Raises InputError and Unavailable."""
        # Imported here: most clusters have nothing of Kueue.
        from stowplan.simulation.kueue.job_admission import admit_jobs

        report = admit_jobs(self._kueue_cluster(objects), options).report
        assert report is not None, "admitting reports"
        return report

    def _kueue_cluster(self, objects: ObjectsAtOnce) -> Cluster:
        """The cluster with Kueue's objects; raises Unavailable."""
        cluster = objects.cluster()
        try:
            cluster.kueue_objects = self._kueue_objects()
        except (ServerUnreachable, CredentialError) as problem:
            raise Unavailable(str(problem)) from None
        return cluster

    # What-if.

    async def what_if(self, asked: Tree, objects: ObjectsAtOnce) -> Tree:
        """See `POST what-if`. Raises BadRequest and Unavailable."""
        if self._n_what_ifs >= WHAT_IFS_MAX:
            raise Unavailable("two other questions are being computed; try again")
        self._n_what_ifs += 1
        try:
            return await asyncio.to_thread(self._what_if, asked, objects)
        except USER_ERRORS as problem:
            raise BadRequest(str(problem)) from None
        finally:
            self._n_what_ifs -= 1

    def _what_if(self, asked: Tree, objects: ObjectsAtOnce) -> Tree:
        unknown = asked.keys() - {"changes", "namespace", "pod", "workload"}
        if unknown:
            raise BadRequest(f'unknown field "{min(unknown)}"')
        namespace, manifest = asked.get("namespace") or "default", asked.get("pod") or ""
        if not isinstance(namespace, str) or not isinstance(manifest, str):
            raise BadRequest("namespace, pod: expected texts")
        given = asked.get("changes") or []
        if not isinstance(given, list) or len(given) > CHANGES_MAX:
            raise BadRequest(f"changes: expected a list of at most {CHANGES_MAX}")
        changes = requests_of(given)
        for change in changes:
            if change.kind in REFUSED_KINDS:
                raise BadRequest(f"changes: {change.kind}: not possible here: it names a file")
        quota = self._quota_answer(asked.get("workload") or "", changes, manifest, objects)
        if quota is not None:
            return quota
        if not changes and not manifest:
            raise BadRequest("changes: Required value")
        options = WhatIfOptions(namespace=namespace, now=datetime.now(UTC))
        question = question_of(objects.cluster(), config=self.deciders, options=options)
        with tempfile.TemporaryDirectory(prefix="stowplan-page-") as folder:
            if manifest:
                file = Path(folder) / "pod.yaml"
                file.write_text(manifest, encoding="utf-8")
                changes = (*changes, RequestedChange("submit", str(file)))
            tree: Tree = msgspec.to_builtins(answer(question, changes))
        return tree

    def _quota_answer(
        self,
        workload: object,
        changes: tuple[RequestedChange, ...],
        manifest: str,
        objects: ObjectsAtOnce,
    ) -> Tree | None:
        """The answer of Kueue; None for a question that is not about its quota."""
        options = self.deciders.kueue
        is_quota = any(change.kind == "queue" for change in changes)
        if not isinstance(workload, str) or (workload and (options is None or changes)):
            raise BadRequest("workload: expected a name, alone, where Kueue admits jobs")
        if options is None or not (workload or changes):
            return None
        # Imported here: most clusters have nothing of Kueue.
        from stowplan.web.serving import kueue_questions

        cluster = self._kueue_cluster(objects)
        if not (workload or is_quota or kueue_questions.are_of_queues(changes, cluster)):
            return None
        if manifest or any(change.kind not in ("queue", "delete") for change in changes):
            raise BadRequest(ADMITTED_ALONE)
        if workload:
            return kueue_questions.what_admits(cluster, options, workload)
        return kueue_questions.quota_difference(cluster, options, changes)


def job_tree(found: JobExplanation) -> Tree:
    """What a session decides for a pod and its gang, in the form of `why_tree`."""
    plain = msgspec.to_builtins(found)
    groups: dict[str, list[str]] = {}
    for node in found.nodes:
        for reason in node.reasons:
            groups.setdefault(reason, []).append(node.name)
    rules = [
        {
            "rule": "",
            "reason": reason,
            "code": "Unschedulable",
            "first": len(names),
            "nodes": len(names),
            "examples": [{"node": name, "details": []} for name in names[:EXAMPLES_MAX]],
        }
        for reason, names in sorted(groups.items(), key=lambda one: (-len(one[1]), one[0]))
    ]
    job = found.job
    message = found.message or ("" if job is None else job.message)
    return {
        "pod": found.pod,
        "state": found.state,
        "node": found.current_node,
        "wouldGoTo": found.node or found.promised,
        "scheduler": found.scheduler_name,
        "message": message,
        "nodes": len(found.nodes),
        "fitting": sum(not node.reasons for node in found.nodes),
        "rules": rules,
        "podRefusal": None,
        "changes": plain.get("changes", []),
        "notSearched": plain.get("notSearched", []),
        "scores": [],
        "preemption": None,
        "notes": [*found.never, *found.evictions],
    }
