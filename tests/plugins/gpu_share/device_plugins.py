"""Device plugins as test doubles: how those of Volcano and HAMi find a pod and its devices.

Restated from what they do at the kubelet's Allocate call; they share no code with the scheduler.
"""

from __future__ import annotations

from collections.abc import Mapping

Notes = dict[str, str]


def devices_of(text: str) -> list[list[tuple[str, int, int]]]:
    """(id, MiB, cores) by container, of an annotation."""
    found = []
    for container in text.split(";"):
        entries = [entry.split(",") for entry in container.split(":") if "," in entry]
        found.append([(one[0], int(one[2]), int(one[3])) for one in entries])
    return found


class VolcanoDevicePlugin:
    """Serves the oldest pod of its node whose next container has as many devices as asked for."""

    prefix = "volcano.sh"
    to_allocate = "volcano.sh/devices-to-allocate"

    def __init__(self, node: str, pods: Mapping[str, Notes]) -> None:
        self.node = node
        self.pods = pods
        self.served: dict[str, int] = {}

    def allocate(self, count: int) -> tuple[str, list[tuple[str, int, int]]]:
        """The pod that is served, and the devices of its next container."""
        name = self.oldest(count)
        containers = self._containers(name)
        at = self.served.get(name, 0)
        self.served[name] = at + 1
        if at + 1 == len(containers):
            self.pods[name][f"{self.prefix}/bind-phase"] = "success"
        return name, containers[at]

    def _containers(self, name: str) -> list[list[tuple[str, int, int]]]:
        return [one for one in devices_of(self.pods[name][self.to_allocate]) if one]

    def oldest(self, count: int) -> str:
        """The pod that a call for so many devices is taken to be for."""
        waiting = []
        for name, notes in self.pods.items():
            phase = notes.get(f"{self.prefix}/bind-phase")
            if notes.get(f"{self.prefix}/vgpu-node") != self.node or phase != "allocating":
                continue
            assert notes[f"{self.prefix}/bind-time"].isdigit()
            left = self._containers(name)[self.served.get(name, 0) :]
            if left and len(left[0]) == count:
                waiting.append((int(notes[f"{self.prefix}/vgpu-time"]), name))
        assert waiting, "no pod waits for devices"
        return min(waiting)[1]


class HamiDevicePlugin(VolcanoDevicePlugin):
    """Takes the pod that the lock of its node names (`TIME,NAMESPACE,NAME`); without a lock any pod
    that waits there, whatever its time and its number of devices."""

    prefix = "hami.io"
    to_allocate = "hami.io/vgpu-devices-to-allocate"
    lock = ""

    def oldest(self, count: int) -> str:
        """The pod that a call is taken to be for; here the last of those that may be meant."""
        if self.lock:
            return self.lock.split(",")[2]
        waiting = [
            name
            for name, notes in self.pods.items()
            if notes.get("hami.io/vgpu-node") == self.node
            and notes.get("hami.io/bind-phase") == "allocating"
            and "hami.io/bind-time" in notes
        ]
        assert waiting, "no pod waits for devices"
        return waiting[-1]
