"""Pod status that a kubelet reports, at each stage of the lifecycle.

Source: kubelet v1.36, pkg/kubelet/kubelet_pods.go and pkg/kubelet/status/generate.go.
"""

from __future__ import annotations

from stowplan.apis.machinery.timestamps import format_time
from stowplan.controller_runtime.object_fields import find_condition
from stowplan.kubelet.container_resources import granted_resources
from stowplan.objects.encoding.tree import Tree


def set_creating(pod: Tree, host: str, now: float) -> None:
    """Admitted: the containers are being created."""
    status = _init_status(pod, host, now)
    status["phase"] = "Pending"
    _set_conditions(
        pod, now, initialized=not _regular_init_containers(pod), ready=False, started=False
    )
    for container in _init_containers(pod):
        _set_container_status(
            status, "initContainerStatuses", _waiting(container, "PodInitializing")
        )
    reason = "PodInitializing" if _init_containers(pod) else "ContainerCreating"
    for container in pod["spec"]["containers"]:
        _set_container_status(status, "containerStatuses", _waiting(container, reason))


def set_running(pod: Tree, host: str, address: str, now: float, ready: bool) -> None:
    """All containers run; init containers have finished, sidecars run as well."""
    status = _init_status(pod, host, now)
    status["phase"] = "Running"
    if address and not status.get("podIP"):
        status["podIP"] = address
        status["podIPs"] = [{"ip": address}]
    _set_conditions(pod, now, initialized=True, ready=ready, started=True)
    for container in _init_containers(pod):
        if container.get("restartPolicy") == "Always":
            entry = _running(pod, container, "initContainerStatuses", now, ready=True)
        else:
            entry = _terminated(pod, container, "initContainerStatuses", 0, now)
            entry["ready"] = True
        _set_container_status(status, "initContainerStatuses", entry)
    for container in pod["spec"]["containers"]:
        _set_container_status(
            status, "containerStatuses", _running(pod, container, "containerStatuses", now, ready)
        )


def set_ready(pod: Tree, now: float) -> None:
    """The running containers pass their (simulated) probes."""
    _set_conditions(pod, now, initialized=True, ready=True, started=True)
    for entry in pod["status"].get("containerStatuses") or ():
        entry["ready"] = True


def set_crash_loop_back_off(pod: Tree, code: int, now: float) -> None:
    """The containers have ended and will be restarted after a backoff."""
    status = pod["status"]
    _set_conditions(pod, now, initialized=True, ready=False, started=True)
    for container in pod["spec"]["containers"]:
        entry = _terminated(pod, container, "containerStatuses", code, now)
        wait = f"back-off {container['name']} restarting failed container"
        entry["lastState"] = entry["state"]
        entry["state"] = {"waiting": {"reason": "CrashLoopBackOff", "message": wait}}
        entry["ready"] = entry["started"] = False
        _set_container_status(status, "containerStatuses", entry)


def set_restarted(pod: Tree, code: int | None, now: float, ready: bool) -> None:
    """The containers run again. code: exit code of the previous run; None: they were waiting."""
    status = pod["status"]
    for container in pod["spec"]["containers"]:
        old = _container_status(status, "containerStatuses", container["name"])
        last = old.get("lastState") or {}
        if code is not None:
            last = _terminated(pod, container, "containerStatuses", code, now)["state"]
        again = {**old, "restartCount": old.get("restartCount", 0) + 1, "state": {}}
        _set_container_status(status, "containerStatuses", again)
        entry = _running(pod, container, "containerStatuses", now, ready)
        entry["lastState"] = last
        _set_container_status(status, "containerStatuses", entry)
    _set_conditions(pod, now, initialized=True, ready=ready, started=True)


def set_terminated(pod: Tree, code: int, now: float) -> None:
    """The containers have ended for good."""
    status = pod["status"]
    good = code == 0
    status["phase"] = "Succeeded" if good else "Failed"
    reason = "PodCompleted" if good else "PodFailed"
    _set_conditions(pod, now, initialized=True, ready=False, started=False, why=reason)
    for container in pod["spec"]["containers"]:
        entry = _terminated(pod, container, "containerStatuses", code, now)
        entry["ready"] = entry["started"] = False
        _set_container_status(status, "containerStatuses", entry)


def set_rejected(pod: Tree, host: str, reason: str, message: str, now: float) -> None:
    """The node rejects the pod."""
    status = pod.setdefault("status", {})
    status |= {
        "phase": "Failed",
        "reason": reason,
        "message": message,
        "startTime": format_time(now),
    }
    if host:
        status["hostIP"] = host


def set_deadline_exceeded(pod: Tree, now: float) -> None:
    """`activeDeadlineSeconds` has passed."""
    set_terminated(pod, 137, now)
    text = "Pod was active on the node longer than the specified deadline"
    pod["status"] |= {"phase": "Failed", "reason": "DeadlineExceeded", "message": text}


def _init_status(pod: Tree, host: str, now: float) -> Tree:
    status: Tree = pod.setdefault("status", {})
    status.setdefault("startTime", format_time(now))
    status["observedGeneration"] = pod["metadata"].get("generation", 1)
    if host:
        status["hostIP"] = host
        status["hostIPs"] = [{"ip": host}]
    return status


def _set_conditions(
    pod: Tree, now: float, *, initialized: bool, ready: bool, started: bool, why: str = ""
) -> None:
    """Set the kubelet's conditions. why: reason of not being ready, if not the usual one."""
    names = " ".join(each["name"] for each in pod["spec"]["containers"])
    late = {"reason": why or "ContainersNotReady"}
    if not why:
        late["message"] = f"containers with unready status: [{names}]"
    inits = " ".join(each["name"] for each in _regular_init_containers(pod))
    blocked = {
        "reason": "ContainersNotInitialized",
        "message": f"containers with incomplete status: [{inits}]",
    }
    conditions = pod["status"].setdefault("conditions", [])
    _set_condition(conditions, "PodReadyToStartContainers", started, {}, now)
    _set_condition(conditions, "Initialized", initialized, {} if initialized else blocked, now)
    gate = _unready_gates(pod) if ready else {}
    _set_condition(conditions, "Ready", ready and not gate, gate if ready else late, now)
    _set_condition(conditions, "ContainersReady", ready, {} if ready else late, now)
    order = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"]
    conditions.sort(key=lambda c: order.index(c["type"]) if c["type"] in order else len(order))


def _unready_gates(pod: Tree) -> Tree:
    """Reason and message of the readiness gates that are not true; {} if all are."""
    conditions = pod["status"].get("conditions") or ()
    closed = []
    for gate in pod["spec"].get("readinessGates") or ():
        name = gate.get("conditionType", "")
        found = find_condition(conditions, name)
        if found is None:
            closed.append(f'corresponding condition of pod readiness gate "{name}" does not exist.')
        elif found.get("status") != "True":
            closed.append(
                f'the status of pod readiness gate "{name}" is not "True", but {found["status"]}'
            )
    return {"reason": "ReadinessGatesNotReady", "message": ", ".join(closed)} if closed else {}


def _set_condition(conditions: list[Tree], type_: str, holds: bool, more: Tree, now: float) -> None:
    status = "True" if holds else "False"
    old = find_condition(conditions, type_)
    since = format_time(now)
    if old is not None and old.get("status") == status:
        since = old.get("lastTransitionTime", since)
    entry = {"type": type_, "status": status, "lastProbeTime": None, "lastTransitionTime": since}
    entry |= more
    if old is None:
        conditions.append(entry)
    else:
        old.clear()
        old.update(entry)


def _init_containers(pod: Tree) -> list[Tree]:
    return pod["spec"].get("initContainers") or []


def _regular_init_containers(pod: Tree) -> list[Tree]:
    return [each for each in _init_containers(pod) if each.get("restartPolicy") != "Always"]


def _container_status(status: Tree, field: str, name: str) -> Tree:
    entries = status.get(field) or ()
    return next((each for each in entries if each.get("name") == name), {})


def _set_container_status(status: Tree, field: str, entry: Tree) -> None:
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
    old = _container_status(pod["status"], field, container["name"])
    count = old.get("restartCount", 0)
    image = container.get("image", "")
    return {
        "name": container["name"],
        "state": {"running": {"startedAt": format_time(now)}},
        "lastState": old.get("lastState") or {},
        "ready": ready,
        "restartCount": count,
        "image": image,
        "imageID": image,
        "containerID": _container_id(pod, container, count),
        "started": True,
        **granted_resources(container),
    }


def _terminated(pod: Tree, container: Tree, field: str, code: int, now: float) -> Tree:
    old = _container_status(pod["status"], field, container["name"])
    count = old.get("restartCount", 0)
    began = ((old.get("state") or {}).get("running") or {}).get("startedAt", format_time(now))
    image = container.get("image", "")
    ended = {
        "exitCode": code,
        "reason": "Completed" if code == 0 else "Error",
        "startedAt": began,
        "finishedAt": format_time(now),
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
