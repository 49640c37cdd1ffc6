"""What happens in a cluster by itself: controllers and hollow nodes, driven by changes and time.

`Life` is an observer of the API server. A change only makes it note what must be looked at;
`step` then does the looking, and says when it wants to be called again. Nothing is done outside
`step`, so that whoever drives it decides when the cluster lives and how fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from stowplan.cluster.controllers.budgets import Budgets
from stowplan.cluster.controllers.deployments import Deployments
from stowplan.cluster.controllers.ephemeral import EphemeralClaims
from stowplan.cluster.controllers.garbage import Garbage
from stowplan.cluster.controllers.index import Index, PodFacts
from stowplan.cluster.controllers.jobs import Jobs
from stowplan.cluster.controllers.namespaces import Namespaces
from stowplan.cluster.controllers.nodes import NodeLife
from stowplan.cluster.controllers.recorder import Recorder
from stowplan.cluster.controllers.replicasets import ReplicaSets
from stowplan.cluster.controllers.strays import Strays
from stowplan.cluster.controllers.taints import TaintEvictions
from stowplan.cluster.controllers.unimplemented import Unimplemented
from stowplan.cluster.controllers.volumes import Volumes
from stowplan.cluster.errors import no_such_path
from stowplan.cluster.faults import Faults
from stowplan.cluster.hollow.heartbeats import Heartbeats
from stowplan.cluster.hollow.kubelets import Kubelets
from stowplan.cluster.hollow.plan import Habits
from stowplan.cluster.resource import Change, Deletion, Resource

if TYPE_CHECKING:
    from stowplan.cluster.server import ApiServer

Tree = dict[str, Any]

STEP_MOST = 64
"""How many objects one step looks at before it lets its caller see to other things."""
WRITES_MOST = 200
"""After how many writes a step stops as well; one look may make a hundred."""
REST_FIRST_SECONDS = 1.0
REST_MOST_SECONDS = 60.0
"""How long a part is left alone that failed outside of any object, twice as long each time."""

_IN_A_ROW = 4


@dataclass(frozen=True, slots=True)
class Living:
    """What of the cluster is alive. habits: of pods whose annotations say nothing."""

    controllers: bool = True
    hollow_nodes: bool = True
    habits: Habits = field(default_factory=Habits)


class Part(Protocol):
    """A controller, or the hollow nodes, as `Life` drives them."""

    name: str

    def observe(self, change: Change, before: PodFacts | None) -> None:
        """Note what this change makes worth looking at."""

    def work_once(self) -> bool:
        """Look at one thing that is due; False if nothing is."""
        ...

    def next_at(self) -> float | None:
        """When something is due; None: not before something changes."""
        ...

    @property
    def n_failing(self) -> int:
        """Objects whose last look failed."""
        ...


class InProcess:
    """`controllers.api.Api` on an `ApiServer`."""

    def __init__(self) -> None:
        self.now = 0.0
        self._server: ApiServer | None = None

    def attach(self, server: ApiServer) -> None:
        """The server to work on; told before the first call."""
        self._server = server

    @property
    def server(self) -> ApiServer:
        """The server worked on."""
        assert self._server is not None, "Life is used before it has a server"
        return self._server

    @property
    def faults(self) -> Faults:
        """Where failures are noted that nothing expects."""
        return self.server.faults

    def get(self, path: str, namespace: str, name: str) -> Tree | None:
        """A fresh copy of a stored object; None if there is none."""
        resource = self.server.registry.by_path(path)
        return None if resource is None else self.server.get(resource, namespace, name)

    def list(self, path: str, namespace: str = "") -> Iterator[Tree]:
        """Fresh copies of the objects of a kind; none of a kind that is not served."""
        resource = self.server.registry.by_path(path)
        return iter(()) if resource is None else self.server.list(resource, namespace)

    def create(self, path: str, obj: Tree) -> Tree:
        """The object as stored."""
        return self.server.create(self._resource(path), obj, self.now)

    def update(self, path: str, obj: Tree) -> Tree:
        """The object as stored."""
        return self.server.update(self._resource(path), obj, self.now)

    def update_status(self, path: str, obj: Tree) -> Tree:
        """The object as stored."""
        return self.server.update_status(self._resource(path), obj, self.now)

    def delete(
        self, path: str, namespace: str, name: str, deletion: Deletion | None = None
    ) -> None:
        """Delete as a DELETE request would."""
        self.server.delete(self._resource(path), namespace, name, self.now, deletion)

    def finalize(self, obj: Tree) -> Tree:
        """`update` of a namespace through its finalize subresource."""
        return self.server.update(self._resource("namespaces"), obj, self.now, "finalize")

    def path_of(self, api_version: str, kind: str) -> tuple[str, bool] | None:
        """The path of a kind and whether it is namespaced."""
        group, _, version = api_version.rpartition("/")
        found = self.server.registry.by_kind(group, version, kind)
        return None if found is None else (found.path, found.namespaced)

    def paths(self, namespaced: bool) -> Sequence[str]:
        """The paths of all kinds that can be listed and deleted."""
        found = (
            each.path
            for each in self.server.registry.all()
            if each.namespaced == namespaced and {"list", "delete"} <= set(each.verbs)
        )
        return sorted(set(found))

    def _resource(self, path: str) -> Resource:
        found = self.server.registry.by_path(path)
        if found is None:
            raise no_such_path()
        return found


class Life:
    """Controllers and hollow nodes of one cluster."""

    def __init__(self, living: Living | None = None) -> None:
        living = living or Living()
        self.api = InProcess()
        self.index = Index()
        recorder = Recorder(self.api)
        self.parts: list[Part] = []
        self._rests: dict[str, tuple[float, float]] = {}
        self._first = 0
        if living.controllers:
            self.parts += [
                kind(self.api, self.index, recorder)
                for kind in (
                    Deployments,
                    ReplicaSets,
                    Jobs,
                    Budgets,
                    NodeLife,
                    TaintEvictions,
                    Strays,
                    Namespaces,
                    Volumes,
                    EphemeralClaims,
                    Unimplemented,
                )
            ]
            self.parts.append(Garbage(self.api, self.index))
        if living.hollow_nodes:
            self.parts.append(Kubelets(self.api, self.index, recorder, living.habits))
            self.parts.append(Heartbeats(self.api))

    def changed(self, server: ApiServer, change: Change, now: float) -> None:
        """Note a change. Called from inside the write that made it: nothing is written here."""
        self.api.attach(server)
        self.api.now = now
        before: PodFacts | None = None
        try:
            before = self.index.observe(change)
        # Whatever it is, it is of this one object: the write that made it stands.
        except Exception as error:  # noqa: BLE001
            self.api.faults.add("index", change.key, error)
        for part in self.parts:
            try:
                part.observe(change, before)
            except Exception as error:  # noqa: BLE001
                self.api.faults.add(part.name, change.key, error)

    def step(self, now: float, most: int = STEP_MOST) -> float | None:
        """Look at what is due, at most `most` things; when to be called again (None: no need).

        The answer is `now` when it stopped before everything due was done.
        """
        self.api.now = now
        looked = 0
        enough = self.api.server.version + WRITES_MOST
        while looked < most and self.api.server.version < enough:
            # Each step begins with another part: whoever writes much leaves the others a turn.
            self._first = (self._first + 1) % max(len(self.parts), 1)
            turns = (*self.parts[self._first :], *self.parts[: self._first])
            worked = sum(self._work_a_little(part, enough) for part in turns)
            if not worked:
                break
            looked += worked
        return self.next_at()

    def _work_a_little(self, part: Part, enough: int) -> int:
        """Let a part look at a few things, so that none waits long for the others; at how many."""
        until, _ = self._rests.get(part.name, (0.0, 0.0))
        if until > self.api.now:
            return 0
        for looked in range(_IN_A_ROW):
            if self.api.server.version >= enough:
                return looked
            try:
                if not part.work_once():
                    return looked
            # Not one object's failure, or telling of one failed: the others go on meanwhile.
            except Exception as error:  # noqa: BLE001
                self._rest(part, error)
                return looked
            self._rests.pop(part.name, None)
        return _IN_A_ROW

    def _rest(self, part: Part, error: Exception) -> None:
        """Leave a part alone for a while."""
        self.api.faults.add(part.name, "", error)
        _, last = self._rests.get(part.name, (0.0, 0.0))
        wait = min(last * 2 or REST_FIRST_SECONDS, REST_MOST_SECONDS)
        self._rests[part.name] = (self.api.now + wait, wait)

    def next_at(self) -> float | None:
        """When something is due; in the past or 0.0: at once."""
        moments = []
        for part in self.parts:
            moment = part.next_at()
            if moment is not None:
                moments.append(max(moment, self._rests.get(part.name, (0.0, 0.0))[0]))
        return min(moments, default=None)

    def failing(self) -> dict[str, int]:
        """Objects whose last look failed, by controller."""
        return {part.name: part.n_failing for part in self.parts}
