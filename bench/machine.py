"""Pods through the whole machine: events in, Bind effects out, and where the time goes.

The clock runs from the first handle() with decoded PodAdded events to the last Bind effect, at
most 1,000 pods a call; the API's answers and the watch's confirmations are timed apart.
Run: python bench/machine.py [SHAPE...] [--nodes N] [--pods N].
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import msgspec
from decide import SHAPES, node, pods

from stowplan.assembly import configuration_of
from stowplan.assembly.build import machine_for
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.objects.pod import Pod
from stowplan.scheduler.machine import Machine

SECOND = 1_000_000_000
BATCH = 1000


class Stopwatch:
    """Time spent below chosen methods, by label; nested ones count for the outermost only."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._running = False

    def watch(self, label: str, owner: Any, *methods: str) -> None:
        """Time these methods of an object from now on."""
        self.seconds.setdefault(label, 0.0)
        for name in methods:
            setattr(owner, name, self._timed(label, getattr(owner, name)))

    def _timed(self, label: str, method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            if self._running:
                return method(*args, **named)
            self._running = True
            began = time.perf_counter()
            try:
                return method(*args, **named)
            finally:
                self.seconds[label] += time.perf_counter() - began
                self._running = False

        return call


def machine_with(n_nodes: int) -> Machine:
    """A machine of the default profile that knows the nodes."""
    configuration, registry = configuration_of(None, "default")
    machine = machine_for(configuration, registry)
    machine.handle([happened.NodeAdded(node(index)) for index in range(n_nodes)], 0)
    return machine


def through(machine: Machine, waiting: list[Pod]) -> tuple[float, list[to_do.Bind]]:
    """Seconds from the first event to the last Bind, and the Binds."""
    binds: list[to_do.Bind] = []
    began = time.perf_counter()
    for first in range(0, len(waiting), BATCH):
        events = [happened.PodAdded(pod) for pod in waiting[first : first + BATCH]]
        effects = machine.handle(events, SECOND, BATCH)
        binds += [effect for effect in effects if isinstance(effect, to_do.Bind)]
    return time.perf_counter() - began, binds


def confirm(machine: Machine, waiting: list[Pod], binds: list[to_do.Bind]) -> float:
    """Seconds to take in the API's answers and the watch's confirmations."""
    by_uid = {pod.uid: pod for pod in waiting}
    events: list[happened.Event] = []
    for bind in binds:
        pod = by_uid[bind.uid]
        spec = msgspec.structs.replace(pod.spec, node_name=bind.node)
        events.append(happened.BindDone(bind.effect, bind.uid))
        events.append(happened.PodUpdated(msgspec.structs.replace(pod, spec=spec)))
    began = time.perf_counter()
    for first in range(0, len(events), BATCH):
        machine.handle(events[first : first + BATCH], 2 * SECOND, BATCH)
    return time.perf_counter() - began


def report(shape: str, n_nodes: int, n_pods: int) -> None:
    """Print the rate of a shape, then where a second run spends its time."""
    waiting = list(pods(shape, n_pods))
    machine = machine_with(n_nodes)
    took_s, binds = through(machine, waiting)
    confirmed_s = confirm(machine, waiting, binds)
    print(
        f"{shape:>10}  {n_pods / took_s:>8,.0f} pods/s, {len(binds)} bound;"
        f" confirmations {len(binds) / confirmed_s:,.0f} pods/s"
    )
    machine = machine_with(n_nodes)
    watch = Stopwatch()
    watch.watch("decision", machine._decider, "decide")
    watch.watch("queue", machine.queue, "add", "pop", "done", "put_back", "move")
    watch.watch("cache", machine.cache, "assume", "snapshot", "put_pod")
    took_s, _ = through(machine, waiting)
    rest_s = took_s - sum(watch.seconds.values())
    parts = {**watch.seconds, "effects and the rest": rest_s}
    shown = ", ".join(f"{label} {s / n_pods * 1e6:.1f}" for label, s in parts.items())
    print(f"            us per pod: {shown}", flush=True)


def main() -> None:
    """Print two lines per shape."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("shapes", nargs="*", default=["basic"], metavar="SHAPE")
    parser.add_argument("--nodes", type=int, default=5000)
    parser.add_argument("--pods", type=int, default=10_000)
    given = parser.parse_args()
    print(f"{given.nodes} nodes, {given.pods} pods through the machine")
    for shape in given.shapes or list(SHAPES):
        report(shape, given.nodes, given.pods)


if __name__ == "__main__":
    main()
