"""The text of devices in pod annotations, as Volcano's and HAMi's device plugins read it.

A device is `ID,NVIDIA,MIB,CORES:`; the devices of a container stand together, and containers are
separated by `;`.

Source: volcano-sh/volcano, pkg/scheduler/api/devices/nvidia/vgpu; Project-HAMi/HAMi, pkg/device.
"""

from __future__ import annotations

from collections.abc import Sequence

from stowplan.plugins.gpu_share.conventions.gpu_devices import DeviceShare, PodShares

VENDOR = "NVIDIA"


def format_container(shares: Sequence[DeviceShare]) -> str:
    """The devices of one container."""
    return "".join(f"{one.id},{VENDOR},{one.memory},{one.cores}:" for one in shares)


def parse_shares(text: str) -> PodShares | None:
    """The devices of all containers; None for a text that is not understood, and for one without
    devices, by which a device plugin serves no pod."""
    containers = [_container(part) for part in text.split(";")]
    found = tuple(part for part in containers if part is not None)
    return found if len(found) == len(containers) and any(found) else None


def _container(text: str) -> tuple[DeviceShare, ...] | None:
    shares = []
    for entry in text.split(":"):
        if not entry.strip():
            continue
        fields = entry.split(",")
        if len(fields) < 4 or not (is_number(fields[2]) and is_number(fields[3])):
            return None
        shares.append(DeviceShare(fields[0], int(fields[2]), int(fields[3])))
    return tuple(shares)


def is_number(text: str) -> bool:
    """True for a whole number of 0 or more that is not absurdly long."""
    return text.isascii() and text.isdigit() and len(text) <= 18
