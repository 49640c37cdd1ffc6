"""The status that a kubelet reports of a pod, at each stage of its life.

Source: kubelet v1.36, pkg/kubelet/kubelet_pods.go and pkg/kubelet/status/generate.go.
"""

from __future__ import annotations

from typing import Any

from stowplan.cluster.controllers.trees import condition
from stowplan.cluster.times import stamp

Tree = dict[str, Any]


def arrived(pod: Tree, host: str, now: float) -> None:
    """Accepted: the containers are being created."""
    status = _begin(pod, host, now)
    status["phase"] = "Pending"
    _say(pod, now, initialized=not _plain_inits(pod), ready=False, started=False)
    for container in _inits(pod):
        _set(status, "initContainerStatuses", _waiting(container, "PodInitializing"))
    reason = "PodInitializing" if _inits(pod) else "ContainerCreating"
    for container in pod["spec"]["containers"]:
        _set(status, "containerStatuses", _waiting(container, reason))


def runs(pod: Tree, host: str, address: str, now: float, ready: bool) -> None:
    """All containers run; init containers have ended, sidecars run as well."""
    status = _begin(pod, host, now)
    status["phase"] = "Running"
    if address and not status.get("podIP"):
        status["podIP"] = address
        status["podIPs"] = [{"ip": address}]
    _say(pod, now, initialized=True, ready=ready, started=True)
    for container in _inits(pod):
        if container.get("restartPolicy") == "Always":
            entry = _running(pod, container, "initContainerStatuses", now, ready=True)
        else:
            entry = _ended(pod, container, "initContainerStatuses", 0, now)
            entry["ready"] = True
        _set(status, "initContainerStatuses", entry)
    for container in pod["spec"]["containers"]:
        _set(status, "containerStatuses", _running(pod, container, "containerStatuses", now, ready))


def becomes_ready(pod: Tree, now: float) -> None:
    """The running containers pass their (imagined) probes."""
    _say(pod, now, initialized=True, ready=True, started=True)
    for entry in pod["status"].get("containerStatuses") or ():
        entry["ready"] = True


def crashed(pod: Tree, code: int, now: float) -> None:
    """The containers ended and will be started again after a pause."""
    status = pod["status"]
    _say(pod, now, initialized=True, ready=False, started=True)
    for container in pod["spec"]["containers"]:
        entry = _ended(pod, container, "containerStatuses", code, now)
        wait = f"back-off {container['name']} restarting failed container"
        entry["lastState"] = entry["state"]
        entry["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": wait}}
        entry["ready"] = entry["started"] = False
        _set(status, "containerStatuses", entry)


def restarts(pod: Tree, code: int | None, now: float, ready: bool) -> None:
    """The containers run again. code: how they ended just now; None: they had been waiting."""
    status = pod["status"]
    for container in pod["spec"]["containers"]:
        old = _status_of(status, "containerStatuses", container["name"])
        last = old.get("lastState") or {}
        if code is not None:
            last = _ended(pod, container, "containerStatuses", code, now)["state"]
        again = {**old, "restartCount": old.get("restartCount", 0) + 1, "state": {}}
        _set(status, "containerStatuses", again)
        entry = _running(pod, container, "containerStatuses", now, ready)
        entry["lastState"] = last
        _set(status, "containerStatuses", entry)
    _say(pod, now, initialized=True, ready=ready, started=True)


def finished(pod: Tree, code: int, now: float) -> None:
    """The containers ended for good."""
    status = pod["status"]
    good = code == 0
    status["phase"] = "Succeeded" if good else "Failed"
    reason = "PodCompleted" if good else "PodFailed"
    _say(pod, now, initialized=True, ready=False, started=False, why=reason)
    for container in pod["spec"]["containers"]:
        entry = _ended(pod, container, "containerStatuses", code, now)
        entry["ready"] = entry["started"] = False
        _set(status, "containerStatuses", entry)


def refused(pod: Tree, host: str, reason: str, message: str, now: float) -> None:
    """The node does not take the pod."""
    status = pod.setdefault("status", {})
    status |= {"phase": "Failed", "reason": reason, "message": message, "startTime": stamp(now)}
    if host:
        status["hostIP"] = host


def missed_deadline(pod: Tree, now: float) -> None:
    """`activeDeadlineSeconds` is over."""
    finished(pod, 137, now)
    text = "Pod was active on the node longer than the specified deadline"
    pod["status"] |= {"phase": "Failed", "reason": "DeadlineExceeded", "message": text}


def _begin(pod: Tree, host: str, now: float) -> Tree:
    status: Tree = pod.setdefault("status", {})
    status.setdefault("startTime", stamp(now))
    status["observedGeneration"] = pod["metadata"].get("generation", 1)
    if host:
        status["hostIP"] = host
        status["hostIPs"] = [{"ip": host}]
    return status


def _say(
    pod: Tree, now: float, *, initialized: bool, ready: bool, started: bool, why: str = ""
) -> None:
    """Set the kubelet's conditions. why: reason of not being ready, if not the usual one."""
    names = " ".join(each["name"] for each in pod["spec"]["containers"])
    late = {"reason": why or "ContainersNotReady"}
    if not why:
        late["message"] = f"containers with unready status: [{names}]"
    inits = " ".join(each["name"] for each in _plain_inits(pod))
    blocked = {
        "reason": "ContainersNotInitialized",
        "message": f"containers with incomplete status: [{inits}]",
    }
    conditions = pod["status"].setdefault("conditions", [])
    _put(conditions, "PodReadyToStartContainers", started, {}, now)
    _put(conditions, "Initialized", initialized, {} if initialized else blocked, now)
    gate = _closed_gate(pod) if ready else {}
    _put(conditions, "Ready", ready and not gate, gate if ready else late, now)
    _put(conditions, "ContainersReady", ready, {} if ready else late, now)
    order = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
    conditions.sort(key=lambda c: order.index(c["type"]) if c["type"] in order else len(order))


def _closed_gate(pod: Tree) -> Tree:
    """Reason and message of the readiness gates that are not open; {} if all are."""
    conditions = pod["status"].get("conditions") or ()
    closed = []
    for gate in pod["spec"].get("readinessGates") or ():
        name = gate.get("conditionType", "")
        found = condition(conditions, name)
        if found is None:
            closed.append(f'corresponding condition of pod readiness gate "{name}" does not exist.')
        elif found.get("status") != "True":
            closed.append(
                f'the status of pod readiness gate "{name}" is not "True", but {found["status"]}'
            )
    return {"reason": "ReadinessGatesNotReady", "message": ", ".join(closed)} if closed else {}


def _put(conditions: list[Tree], type_: str, holds: bool, more: Tree, now: float) -> None:
    status = "True" if holds else "False"
    old = condition(conditions, type_)
    since = stamp(now)
    if old is not None and old.get("status") == status:
        since = old.get("lastTransitionTime", since)
    entry = {"type": type_, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
    entry |= more
    if old is None:
        conditions.append(entry)
    else:
        old.clear()
        old.update(entry)


def _inits(pod: Tree) -> list[Tree]:
    return pod["spec"].get("initContainers") or []


def _plain_inits(pod: Tree) -> list[Tree]:
    return [each for each in _inits(pod) if each.get("restartPolicy") != "Always"]


def _status_of(status: Tree, field: str, name: str) -> Tree:
    entries = status.get(field) or ()
    return next((each for each in entries if each.get("name") == name), {})


def _set(status: Tree, field: str, entry: Tree) -> None:
    entries = status.setdefault(field, [])
    for at, each in enumerate(entries):
        if each.get("name") == entry["name"]:
            entries[at] = entry
            return
    entries.append(entry)


def _waiting(container: Tree, reason: str) -> Tree:
    return {
        "name": container["name"],
        "state": {"waiting": {"reason": reason}},
        "lastState": {},
        "ready": False,
        "restartCount": 0,
        "image": container.get("image", ""),
        "imageID": "",
        "started": False,
    }


def _container_id(pod: Tree, container: Tree, count: int) -> str:
    return f"hollow://{pod['metadata']['uid']}/{container['name']}/{count}"


def _running(pod: Tree, container: Tree, field: str, now: float, ready: bool) -> Tree:
    old = _status_of(pod["status"], field, container["name"])
    count = old.get("restartCount", 0)
    image = container.get("image", "")
    return {
        "name": container["name"],
        "state": {"running": {"startedAt": stamp(now)}},
        "lastState": old.get("lastState") or {},
        "ready": ready,
        "restartCount": count,
        "image": image,
        "imageID": image,
        "containerID": _container_id(pod, container, count),
        "started": True,
    }


def _ended(pod: Tree, container: Tree, field: str, code: int, now: float) -> Tree:
    old = _status_of(pod["status"], field, container["name"])
    count = old.get("restartCount", 0)
    began = ((old.get("state") or {}).get("running") or {}).get("startedAt", stamp(now))
    image = container.get("image", "")
    ended = {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "startedAt": began,
        "finishedAt": stamp(now),
        "containerID": _container_id(pod, container, count),
    }
    return {
        "name": container["name"],
        "state": {"terminated": ended},
        "lastState": old.get("lastState") or {},
        "ready": False,
        "restartCount": count,
        "image": image,
        "imageID": image,
        "containerID": ended["containerID"],
    }
