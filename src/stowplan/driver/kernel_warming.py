"""Kernel warming: loads the compiled kernels, or compiles them once per computer, before the first
pod is scheduled. Compiling takes some seconds, loading a fraction of one."""

from __future__ import annotations

import asyncio
import contextlib
import threading

import msgspec

from stowplan.assembly.deciders import ConfigText, deciders_of
from stowplan.cycle.engine.kernel_loading import (
    EngineMode,
    load_preemption_kernel,
    warm_preemption_kernel,
)
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.devices.gpu_cards import COUNT_KEY, MILLI_KEY
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.node import Node, NodeStatus
from stowplan.objects.pod import Container, Pod, PodSpec, ResourceRequirements
from stowplan.objects.quantity import Quantity

GPU_SHARE = "GpuShare"
"""The plugin whose pods the kernels of cards place."""

CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}

_NODES, _PODS = 8, 200


def start_kernel_warming(*, cards: bool) -> asyncio.Future[None]:
    """Warm the kernels in a daemon thread, which the process does not wait for at exit. cards:
    those of GPU cards as well."""
    loop = asyncio.get_running_loop()
    warmed = loop.create_future()

    def settle(fault: Exception | None) -> None:
        if not warmed.done():
            warmed.set_result(None) if fault is None else warmed.set_exception(fault)

    def work() -> None:
        fault: Exception | None = None
        try:
            warm_kernels()
            if cards:
                warm_card_kernels()
        # The future carries the exception to the waiter; this thread cannot raise it.
        except Exception as problem:  # noqa: BLE001
            fault = problem
        # The loop is closed if the program has stopped meanwhile.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, fault)

    threading.Thread(target=work, name="warming", daemon=True).start()
    return warmed


def warm_kernels() -> None:
    """Schedule some fake pods on fake nodes; then load the kernel that plans preemptors."""
    scheduler = deciders_of(()).scheduler(engine=EngineMode.COMPILED.value)
    amounts: dict[str, Quantity] = {"cpu": "64", "memory": "64Gi", "pods": "110"}
    status = NodeStatus(allocatable=amounts)
    events: list[Event] = [
        happened.NodeAdded(Node(ObjectMeta(f"n{i}"), status=status)) for i in range(_NODES)
    ]
    for i in range(_PODS):
        spec = PodSpec((Container("c", resources=_asked(f"{10 + i % 3}m")),))
        events.append(happened.PodAdded(Pod(ObjectMeta(f"p{i}", "default", f"uid{i}"), spec)))
    scheduler.handle(events, 0)
    # Without Numba there is nothing to compile.
    if load_preemption_kernel() is not None:
        warm_preemption_kernel()


def warm_card_kernels() -> None:
    """Schedule two pods on a node with GPU cards."""
    own = {"enabled": [{"name": GPU_SHARE}]}
    alone = {"disabled": [{"name": "*"}], **own}
    profile = {"plugins": {"multiPoint": own, "preScore": alone, "score": alone}}
    text = msgspec.json.encode({**CONFIGURATION, "profiles": [profile]})
    scheduler = deciders_of([ConfigText(text, "kernels")]).scheduler(
        engine=EngineMode.COMPILED.value
    )
    amounts: dict[str, Quantity] = {"cpu": "64", "memory": "64Gi", "pods": "110", COUNT_KEY: "2"}
    node = Node(ObjectMeta("n"), status=NodeStatus(allocatable=amounts))
    notes = {COUNT_KEY: "1", MILLI_KEY: "500"}
    spec = PodSpec((Container("c", resources=_asked("1")),))
    pods = [Pod(ObjectMeta(f"p{i}", "default", f"u{i}", annotations=notes), spec) for i in range(2)]
    scheduler.handle([happened.NodeAdded(node), *map(happened.PodAdded, pods)], 0)


def _asked(cpu: str) -> ResourceRequirements:
    return ResourceRequirements(requests={"cpu": cpu, "memory": "1Mi"})
