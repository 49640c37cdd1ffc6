"""A small stage for the runtime: plugins from answers, and a framework of them."""

from typing import Any

from stowplan.framework import (
    FeatureGates,
    Framework,
    Nominations,
    PluginUse,
    Profile,
    QueuedPod,
    Registry,
    Snapshot,
)
from stowplan.framework.extension_points import points_of
from stowplan.testing import draw, pod

POD = pod("web", priority=5)


class Sort:
    """The queue sort that a profile must have."""

    name = "Sort"

    def less(self, first: QueuedPod, second: QueuedPod) -> bool:
        return first.added_at < second.added_at


def framework_of(*plugins: type[Any], columns: bool = True, **weights: int) -> Framework:
    """A framework in which the plugins take part wherever they can, in this order."""
    registry = Registry()
    points: dict[str, tuple[PluginUse, ...]] = {}
    for plugin in (Sort, *plugins):
        registry.register(plugin)
        use = PluginUse(plugin.name, weights.get(plugin.name, 1))
        for point in points_of(plugin):
            points[point] = (*points.get(point, ()), use)
    return Framework(Profile("test", points), registry, FeatureGates(), columns=columns)


def plugin(name: str, /, **members: Any) -> type[Any]:
    """A plugin class; a member that is no function becomes a method that answers it."""

    def method(answer: Any) -> Any:
        return answer if callable(answer) else lambda self: answer

    constants = {key: value for key, value in members.items() if key.isupper() or key == "weight"}
    methods = {key: method(value) for key, value in members.items() if key not in constants}
    return type(name, (), {"name": name, **constants, **methods})


def snapshot(text: str = "node\nn1\nn2\nn3", nominated: tuple[Any, ...] = ()) -> Snapshot:
    """A drawn cluster, with pods that are nominated to its nodes."""
    return Snapshot(draw(text).table, nominations=Nominations(nominated))
