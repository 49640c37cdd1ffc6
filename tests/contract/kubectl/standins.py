"""What stood around the recorded server: something like a scheduler and something like kubelets.

They look at the whole cluster now and then and do the next thing for each pod: bind it, mark it
Running, finish it if it is a job's, remove it when it is told to go.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.resource import Resource
from stowplan.assembly.embedded_cluster import EmbeddedCluster
from stowplan.objects.store import DeleteOptions

Tree = dict[str, Any]
JOB_S = 1.0
NOWHERE = (
    "0/{n} nodes are available: {n} node(s) didn't match Pod's node affinity/selector. no new "
    "claims to deallocate, preemption: 0/{n} nodes are available: {n} Preemption is not helpful "
    "for scheduling."
)


def stamp(now: float) -> str:
    return datetime.fromtimestamp(int(now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


class StandIns:
    """homes: by pod name or by the name of its owner's owner, the node that it was recorded on."""

    def __init__(self, cluster: EmbeddedCluster, homes: Mapping[str, str]) -> None:
        self.server = cluster.server
        self.homes = homes
        self._recorded: set[str] = set()
        self._since: dict[str, float] = {}
        self._events = 0
        self._addresses = 0

    def _resource(self, plural: str, group: str = "") -> Resource:
        resource = self.server.registry.find(group, "v1", plural)
        assert resource is not None, plural
        return resource

    def step(self, now: float) -> int:
        """Do what there is to do; how many pods something was done to."""
        pods = list(self.server.list(self._resource("pods")))
        done = 0
        for pod in pods:
            try:
                done += self._look_at(pod, pods, now)
            except ApiError as refused:
                # Somebody else was quicker; the next look will tell.
                if refused.code not in (404, 409):
                    raise
        return done

    def _look_at(self, pod: Tree, pods: list[Tree], now: float) -> bool:
        meta, spec, status = pod["metadata"], pod["spec"], pod.get("status", {})
        since = self._since.setdefault(meta["uid"], now)
        if meta.get("deletionTimestamp"):
            self.server.delete(
                self._resource("pods"),
                meta["namespace"],
                meta["name"],
                now,
                DeleteOptions(grace_s=0),
            )
        elif not spec.get("nodeName"):
            return not spec.get("schedulingGates") and self._schedule(pod, pods, now)
        elif status.get("phase", "Pending") == "Pending":
            self._report(pod, self._running(pod, now), now)
        elif status["phase"] == "Running" and self._is_of_job(pod) and now > since + JOB_S:
            self._report(pod, self._finished(pod, now), now)
        else:
            return self._is_of_job(pod) and status["phase"] == "Running"
        return True

    # The scheduler.

    def _schedule(self, pod: Tree, pods: list[Tree], now: float) -> bool:
        nodes = list(self.server.list(self._resource("nodes")))
        suiting = [node for node in nodes if self._suits(pod, node)]
        meta = pod["metadata"]
        if not suiting:
            if meta["uid"] in self._recorded:
                return False
            self._recorded.add(meta["uid"])
            text = NOWHERE.format(n=len(nodes))
            self._report(pod, {"conditions": [self._unschedulable(text, now)]}, now)
            self._event(pod, "Warning", "FailedScheduling", text, now)
            return True
        names = [node["metadata"]["name"] for node in suiting]
        home = self.homes.get(meta["name"]) or self.homes.get(meta["name"].split("-")[0])
        if home not in names:
            taken = [other["spec"].get("nodeName") for other in pods]
            home = min(names, key=lambda name: (taken.count(name), name))
        self.server.bind(pod, home, now)
        where = f"{meta['namespace']}/{meta['name']}"
        self._event(pod, "Normal", "Scheduled", f"Successfully assigned {where} to {home}", now)
        return True

    @staticmethod
    def _suits(pod: Tree, node: Tree) -> bool:
        labels = node["metadata"].get("labels") or {}
        spec = node.get("spec", {})
        refused = spec.get("unschedulable") or any(
            taint["effect"] != "PreferNoSchedule" for taint in spec.get("taints") or ()
        )
        wanted = pod["spec"].get("nodeSelector") or {}
        return not refused and wanted.items() <= labels.items()

    def _event(self, pod: Tree, kind: str, reason: str, note: str, now: float) -> None:
        self._events += 1
        meta = pod["metadata"]
        moment = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        event = {
            "metadata": {
                "name": f"{meta['name']}.{self._events:016x}",
                "namespace": meta["namespace"],
            },
            "eventTime": moment,
            "reportingComponent": "default-scheduler",
            "reportingInstance": "default-scheduler-host",
            "action": "Scheduling" if kind == "Warning" else "Binding",
            "reason": reason,
            "message": note,
            "type": kind,
            "involvedObject": {
                "kind": "Pod",
                "apiVersion": "v1",
                "namespace": meta["namespace"],
                "name": meta["name"],
                "uid": meta["uid"],
                "resourceVersion": meta["resourceVersion"],
            },
        }
        self.server.create(self._resource("events"), event, now)

    # The kubelets.

    def _report(self, pod: Tree, status: Tree, now: float) -> None:
        meta = pod["metadata"]
        namespace, name = meta["namespace"], meta["name"]

        def change(fresh: Tree) -> None:
            old = fresh.setdefault("status", {})
            kept = {each["type"]: each for each in old.get("conditions") or ()}
            kept |= {each["type"]: each for each in status.get("conditions", ())}
            old.update(status)
            old["conditions"] = list(kept.values())

        self.server.modify(self._resource("pods"), namespace, name, change, now, "status")

    @staticmethod
    def _is_of_job(pod: Tree) -> bool:
        owners = pod["metadata"].get("ownerReferences") or ()
        return any(owner["kind"] == "Job" for owner in owners)

    @staticmethod
    def _unschedulable(text: str, now: float) -> Tree:
        return {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": text,
            "lastProbeTime": None,
            "lastTransitionTime": stamp(now),
        }

    @staticmethod
    def _conditions(now: float, *, ready: bool) -> list[Tree]:
        values = {"Initialized": True, "Ready": ready, "ContainersReady": ready}
        return [
            {
                "type": kind,
                "status": str(value),
                "lastProbeTime": None,
                "lastTransitionTime": stamp(now),
            }
            for kind, value in values.items()
        ]

    def _containers(self, pod: Tree, state: Tree, *, ready: bool) -> list[Tree]:
        return [
            {
                "name": container["name"],
                "image": container.get("image", ""),
                "imageID": "",
                "ready": ready,
                "restartCount": 0,
                "started": ready,
                "state": state,
                "lastState": {},
            }
            for container in pod["spec"]["containers"]
        ]

    def _running(self, pod: Tree, now: float) -> Tree:
        self._addresses += 1
        address = f"10.1.0.{self._addresses}"
        return {
            "phase": "Running",
            "hostIP": "10.0.0.1",
            "podIP": address,
            "podIPs": [{"ip": address}],
            "startTime": stamp(now),
            "conditions": self._conditions(now, ready=True),
            "containerStatuses": self._containers(
                pod, {"running": {"startedAt": stamp(now)}}, ready=True
            ),
        }

    def _finished(self, pod: Tree, now: float) -> Tree:
        state = {
            "terminated": {
                "exitCode": 0,
                "reason": "Completed",
                "startedAt": stamp(now),
                "finishedAt": stamp(now),
            }
        }
        return {
            "phase": "Succeeded",
            "conditions": self._conditions(now, ready=False),
            "containerStatuses": self._containers(pod, state, ready=False),
        }


Step = Callable[[float], int]
