"""The small clusters of tests of sessions, decided by kube-batch v0.5."""

from __future__ import annotations

from stowplan.assembly.sessions.kube_batch_v05 import kube_batch_options
from stowplan.assembly.sessions.session_config import batch_configuration
from stowplan.kube_batch_v05.close import KubeBatchClose, close
from stowplan.kube_batch_v05.decider import open_session, run_actions
from stowplan.kube_batch_v05.session import KubeBatchSession
from stowplan.kube_batch_v05.session_cache import KubeBatchCache
from tests.batch.batch_cluster import START, BatchCluster
from tests.scenarios.group_commands import ACTIONS, TIERS


class KubeBatchCluster(BatchCluster):
    """A BatchCluster whose cache and sessions are those of the original."""

    def __init__(self, actions: str = ACTIONS, tiers: str = TIERS) -> None:
        text = f'actions: "{actions}"{tiers}'
        self.kube_batch_options = kube_batch_options(
            batch_configuration(text, "test", lenient=True)
        )
        super().__init__(actions, tiers, inventory=KubeBatchCache(("kube-batch",)))
        self.kube_batch_session: KubeBatchSession | None = None
        self.closed = KubeBatchClose([], [])

    @property
    def cache(self) -> KubeBatchCache:
        assert isinstance(self.inventory, KubeBatchCache)
        return self.inventory

    def run(self) -> tuple[dict[str, str], list[str]]:
        self._sessions += 1
        cache = self.cache
        cache.bound.clear()
        cache.evicted.clear()
        cache.sweep()
        uid = f"session-{self._sessions}"
        session = open_session(cache, self.kube_batch_options, uid, START)
        run_actions(session, self.kube_batch_options)
        self.closed, self.kube_batch_session = close(session), session
        bound = {task.pod.name: task.node for task in session.bound}
        return bound, [task.pod.name for task, _ in session.evicted]

    # What tests ask of both.

    def cpu(self, node: str) -> tuple[float, float]:
        held = self.cache.nodes[node]
        return held.idle.cpu, held.releasing.cpu

    def releasing_in_session(self, node: str) -> float:
        assert self.kube_batch_session is not None
        return self.kube_batch_session.nodes[node].releasing.cpu

    def phases(self) -> dict[str, str]:
        return {update.group.name: update.group.status.phase for update in self.closed.groups}

    def conditions(self) -> list[str]:
        return [c.status for update in self.closed.groups for c in update.group.status.conditions]

    def messages(self) -> list[str]:
        return [message for _, message in self.closed.unplaced]
