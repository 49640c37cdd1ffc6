"""The table of pods.

Source: kubernetes v1.36, pkg/printers/internalversion/printers.go: printPod.
"""

from __future__ import annotations

from typing import Any

from stowplan.apis.kind.printing import NONE, PrintedTable
from stowplan.apis.machinery import timestamps
from stowplan.objects.encoding.tree import Tree

_COLUMNS = "Name, Ready, Status, Restarts, Age, IP+, Node+, Nominated Node+, Readiness Gates+"


class PrintedPodTable(PrintedTable):
    """Pods; rows of finished pods have the condition Completed."""

    def __init__(self) -> None:
        super().__init__(_COLUMNS, _cells)

    def conditions(self, obj: Tree) -> list[Tree]:
        phase = obj["status"].get("phase")
        if phase not in ("Succeeded", "Failed"):
            return []
        text = {"Succeeded": "The pod has completed successfully.", "Failed": "The pod failed."}[
            phase
        ]
        return [{"type": "Completed", "status": "True", "reason": phase, "message": text}]


def _cells(obj: Tree, now: float) -> list[Any]:
    spec, status = obj["spec"], obj["status"]
    summary = _ContainerSummary(spec, status)
    reason = summary.reason
    if obj["metadata"].get("deletionTimestamp"):
        if status.get("reason") == "NodeLost":
            reason = "Unknown"
        elif status.get("phase") not in ("Succeeded", "Failed"):
            reason = "Terminating"
    restarts = str(summary.restarts)
    if summary.restarts and summary.restarted:
        restarts = f"{summary.restarts} ({timestamps.human_age(summary.restarted, now)} ago)"
    ips = status.get("podIPs") or [{}]
    return [
        f"{summary.ready}/{summary.total}",
        reason,
        restarts,
        ips[0].get("ip") or NONE,
        spec.get("nodeName") or NONE,
        status.get("nominatedNodeName") or NONE,
        _readiness_gates(spec, status),
    ]


def _readiness_gates(spec: Tree, status: Tree) -> str:
    gates = spec.get("readinessGates", [])
    if not gates:
        return NONE
    found: dict[str, str] = {}
    for one in status.get("conditions", ()):
        found.setdefault(one["type"], one["status"])
    n_true = sum(found.get(gate["conditionType"]) == "True" for gate in gates)
    return f"{n_true}/{len(gates)}"


class _ContainerSummary:
    """Status, ready count and restarts of a pod's row, from the states of its containers."""

    def __init__(self, spec: Tree, status: Tree) -> None:
        self.reason: str = status.get("reason") or status.get("phase", "")
        self.restarts = 0
        self.restarted = ""
        self.ready = 0
        initial = spec.get("initContainers", ())
        self.sidecars = {one["name"] for one in initial if one.get("restartPolicy") == "Always"}
        self.total = len(spec["containers"] or ()) + len(self.sidecars)
        self.n_initial = len(initial)
        conditions = status.get("conditions", [])
        for one in conditions:
            if one["type"] == "PodScheduled" and one.get("reason") == "SchedulingGated":
                self.reason = "SchedulingGated"
        starting = self._initial(status.get("initContainerStatuses", []))
        true = {one["type"] for one in conditions if one["status"] == "True"}
        if not starting or "Initialized" in true:
            self._regular(status.get("containerStatuses", []), "Ready" in true)

    def _count(self, one: Tree) -> None:
        self.restarts += one["restartCount"]
        finished = (one["lastState"].get("terminated") or {}).get("finishedAt") or ""
        self.restarted = max(self.restarted, finished)

    def _initial(self, statuses: list[Tree]) -> bool:
        """True if an init container is not done; sets the status."""
        of_sidecars, when = 0, ""
        starting = False
        for at, one in enumerate(statuses):
            self._count(one)
            sidecar = one["name"] in self.sidecars
            if sidecar:
                of_sidecars += one["restartCount"]
                when = max(when, (one["lastState"].get("terminated") or {}).get("finishedAt") or "")
            ended = one["state"].get("terminated")
            if ended is not None and ended["exitCode"] == 0:
                continue
            if sidecar and one.get("started"):
                self.ready += one["ready"]
                continue
            self.reason = f"Init:{self._why(one, at)}"
            starting = True
            break
        if not starting:
            self.restarts, self.restarted = of_sidecars, when
        return starting

    def _why(self, one: Tree, at: int) -> str:
        ended, waiting = one["state"].get("terminated"), one["state"].get("waiting", {})
        if ended is not None:
            return _termination_reason(ended)
        if waiting.get("reason") and waiting["reason"] != "PodInitializing":
            return str(waiting["reason"])
        return f"{at}/{self.n_initial}"

    def _regular(self, statuses: list[Tree], pod_is_ready: bool) -> None:
        running, failed = False, ""
        for one in reversed(statuses):
            self._count(one)
            state = one["state"]
            ended = state.get("terminated")
            if state.get("waiting", {}).get("reason"):
                self.reason = state["waiting"]["reason"]
            elif ended is not None:
                self.reason = _termination_reason(ended)
                if ended["exitCode"] != 0:
                    failed = self.reason
            elif one["ready"] and "running" in state:
                running = True
                self.ready += 1
        if self.reason == "Completed":
            if running and pod_is_ready:
                self.reason = "Running"
            elif failed:
                self.reason = failed
            elif running:
                self.reason = "NotReady"


def _termination_reason(ended: Tree) -> str:
    if ended.get("reason"):
        return str(ended["reason"])
    if ended.get("signal"):
        return f"Signal:{ended['signal']}"
    return f"ExitCode:{ended['exitCode']}"
