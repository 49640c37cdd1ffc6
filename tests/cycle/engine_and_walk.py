"""One cluster twice: a run of pods placed by the engine and by the walk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from types import ModuleType
from typing import Any

from msgspec.structs import replace

from stowplan.assembly import registered
from stowplan.columns.nodetable import table_of
from stowplan.config import default, from_tree
from stowplan.cycle.decision import decide
from stowplan.cycle.engine import Engine, EnginePodClass, kernel_loading
from stowplan.framework import FeatureGates, Framework, ObjectStore, Snapshot
from stowplan.objects.meta import Object
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod

BY_WALK = "by the walk"
NOWHERE = "nowhere"


def framework_for(profile: dict[str, Any] | None = None, plugins: Sequence[Any] = ()) -> Framework:
    """The framework of a configuration's only profile."""
    full, defaults = registered(plugins)
    if profile is None:
        made = default(full, defaults)
    else:
        made = from_tree({"profiles": [profile]}, "", full, defaults, body=True)
    (only,) = made.profiles.values()
    return Framework(only, full, FeatureGates())


class Both:
    """A cluster that the engine decides about, and one for the walk."""

    def __init__(
        self,
        nodes: Iterable[Node],
        bound: Iterable[Pod] = (),
        objects: Iterable[Object] = (),
        framework: Framework | None = None,
        kernels: ModuleType | None = None,
    ) -> None:
        """kernels: other than the compiled ones."""
        nodes, bound, objects = tuple(nodes), tuple(bound), tuple(objects)
        self.framework = framework or framework_for()
        chosen = kernels or kernel_loading.load_kernels()
        assert chosen is not None
        self.engine = Engine(chosen)
        self.scores: dict[str, int] = {}
        self.fast, self.slow = (
            Snapshot(table_of(nodes, bound), ObjectStore(objects)) for _ in range(2)
        )

    def both(self, change: Callable[[Snapshot], Any]) -> None:
        """Apply a change to both."""
        change(self.fast)
        change(self.slow)

    def class_of(self, pod: Pod) -> EnginePodClass:
        """The engine's class of a pod that has one."""
        one = self.engine.class_of(pod, self.framework)
        assert one is not None
        return one

    def run(self, pods: Sequence[Pod]) -> list[str]:
        """The engine's placement of each pod, which must equal the walk's; NOWHERE for pods that
        fit nowhere, BY_WALK for pods that the engine leaves to the walk."""
        found = self._placed(pods)
        for pod, node in zip(pods, found, strict=True):
            self.slow.nodes.refresh()
            decision = decide(pod, self.slow, self.framework)
            wanted = decision.node_name
            if node != BY_WALK:
                assert node == (wanted or NOWHERE), f"{pod.name}: {node}, wanted {wanted}"
                # The walk scores nothing if one node is left.
                assert decision.score in (None, self.scores.get(pod.uid)), pod.name
            if wanted:
                self.slow.nodes.add_pod(pod, wanted)
        return found

    def _placed(self, pods: Sequence[Pod]) -> list[str]:
        run = self.engine.run(pods, [self.class_of(pod) for pod in pods])
        found: list[str] = []
        while len(found) < len(pods):
            self.fast.nodes.refresh()
            start = len(found)
            rows = run.place(start, self.fast)
            self.scores |= {
                pods[start + i].uid: int(run.scores[start + i]) for i in range(len(rows))
            }
            found += [self.fast.nodes.names[row] for row in rows]
            if len(found) == len(pods):
                break
            pod = pods[len(found)]
            is_fast = run.heads[len(found)] >= 0 and self.fast.nodes.n_nodes > 0
            found.append(NOWHERE if is_fast else BY_WALK)
            self.fast.nodes.refresh()
            node = decide(pod, self.fast, self.framework).node_name
            if node:
                self.fast.nodes.add_pod(pod, node)
        return found


def copies(made: Pod, n_pods: int) -> list[Pod]:
    """Pods of one template."""
    names = [f"{made.name}-{i}" for i in range(n_pods)]
    return [replace(made, metadata=replace(made.metadata, name=n, uid=n)) for n in names]
