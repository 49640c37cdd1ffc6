"""GPUs for tests: reports from short texts, and scripts for a machine that runs Yoda.

    scv n1 0=8000/12000 1=12000/12000:unhealthy at=10s

says that card 0 of n1 has 8000 of its 12000 MiB free, card 1 all of them but is not healthy, and
that the report was written 10 seconds after the beginning. A card may say more, after colons:
`clock=5705`, `core=`, `power=`, `bandwidth=`.
"""

from __future__ import annotations

import datetime
import json
from typing import Any

from msgspec.structs import replace

from stowplan.assembly.build import configuration_of, scheduler_for
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.devices.scv import Card, Scv, ScvStatus
from stowplan.objects.encoding.duration import parse
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import ContainerRunning, ContainerState, ContainerStatus
from tests.scenarios.script import Player

EPOCH = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def scv(name: str, *settings: str) -> Scv:
    """A report, as the module says; its sums and its number of cards are those of the cards."""
    given = dict(setting.split("=", 1) for setting in settings)
    at = given.pop("at", None)
    cards = tuple(card(int(number), text) for number, text in given.items())
    status = ScvStatus(
        card_list=cards,
        card_number=len(cards),
        update_time=None if at is None else EPOCH + parse(at),
        total_memory_sum=sum(one.total_memory for one in cards),
        free_memory_sum=sum(one.free_memory for one in cards),
    )
    return Scv(metadata=ObjectMeta(name=name), status=status)


def card(number: int, text: str) -> Card:
    """A card from `FREE/TOTAL[:unhealthy][:FIELD=AMOUNT]...`."""
    memory, *rest = text.split(":")
    free, total = memory.split("/")
    health = "Unhealthy" if "unhealthy" in rest else "Healthy"
    more = dict(part.split("=") for part in rest if part != "unhealthy")
    amounts = {field: int(value) for field, value in more.items()}
    return Card(id=number, health=health, free_memory=int(free), total_memory=int(total), **amounts)


def configuration(*, compat: bool = False, weight: int = 300) -> str:
    """A configuration that runs Yoda wherever it can, and lets it sort."""
    plugins = {
        "multiPoint": {"enabled": [{"name": "yoda", "weight": weight}]},
        "queueSort": {"disabled": [{"name": "PrioritySort"}]},
    }
    profile = {"plugins": plugins, "pluginConfig": [{"name": "yoda", "args": {"compat": compat}}]}
    tree = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }
    return json.dumps(tree)


class GpuPlayer(Player):
    """Plays scripts with reports, `scv n1 ...` and `scv n1 gone`, and pods that say since when
    their containers run: `started=10s`."""

    def __init__(self, *, compat: bool = False) -> None:
        super().__init__()
        self.scheduler = scheduler_for(*configuration_of(configuration(compat=compat), "script"))
        self._scvs: dict[str, Scv] = {}

    def _read_scv(self, name: str, *settings: str) -> Event:
        if "gone" in settings:
            return happened.ObjectDeleted(self._scvs.pop(name))
        is_new = name not in self._scvs
        self._scvs[name] = scv(name, *settings)
        kind = happened.ObjectAdded if is_new else happened.ObjectUpdated
        return kind(self._scvs[name])

    def _pod(self, name: str, settings: dict[str, str]) -> Any:
        known = {key: value for key, value in settings.items() if key != "started"}
        pod = super()._pod(name, known)
        if "started" not in settings:
            return pod
        running = ContainerState(ContainerRunning(EPOCH + parse(settings["started"])))
        return replace(
            pod,
            status=replace(pod.status, container_statuses=(ContainerStatus("c", state=running),)),
        )
