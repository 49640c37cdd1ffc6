"""KAI-Scheduler's binder: carries out BindRequests, and holds the cards that pods share.

A card that pods share is held by a reservation pod, which has it whole from the kubelet. It is
created before the first of them is bound, and deleted after the last one.

Differs: a request that fails is not tried again, as the scheduler sets no `backoffLimit`; the index
of a card is found by no program in the reservation pod, which hollow nodes do not run; no ConfigMap
gives it to the container. A pod whose card no reservation pod holds is left alone.

Source: KAI-Scheduler, pkg/binder/controllers/bindrequest_controller.go, pkg/binder/binding
(binder.go, resourcereservation).
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.controller import Controller
from stowplan.controller_runtime.event_recorder import EventRecorder
from stowplan.controller_runtime.object_index import Key, ObjectIndex, PodFacts, split_key
from stowplan.controller_runtime.resource_paths import NODES, PODS
from stowplan.controllers.kai.kai_kinds_served import KAI_BIND_REQUESTS
from stowplan.objects.devices.card_reservation import DEVICE_ID_KEY, GPU
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.kai.bind_request import (
    CARD_LABEL,
    FAILED,
    FRACTION,
    RECEIVED,
    RESERVATION_NAME,
    SUCCEEDED,
    card_labels,
)
from stowplan.objects.kai.zone_placement import (
    PREDICTED_ANNOTATION,
    KaiZonePlacement,
    zones_text,
)
from stowplan.objects.store import BindingStore, DeleteOptions, WatchEvent

_MARK = CARD_LABEL.encode()
_ENDED = ("Succeeded", "Failed")
BOUND, NOT_BOUND = "Bound", "BindingError"
"""Reasons of events."""


class RequestRefused(Exception):
    """A request cannot be carried out."""


class KaiBinder(Controller):
    """Keys are those of BindRequests, and with "" for the namespace names of shared cards, of which
    it is looked whether they are still in use."""

    name = "binder"
    observed = (KAI_BIND_REQUESTS, PODS)

    def __init__(self, api: BindingStore, index: ObjectIndex, recorder: EventRecorder) -> None:
        super().__init__(api, index, recorder)
        self._binding = api
        # By name of a card: requests that are not answered, pods that have a part of it, and the
        # pod that holds it.
        self._asked: dict[str, dict[Key, None]] = {}
        self._users: dict[str, dict[Key, None]] = {}
        self._holders: dict[str, Key] = {}
        self._cards: dict[tuple[str, Key], tuple[str, ...]] = {}

    def observe(self, change: WatchEvent, before: PodFacts | None) -> None:
        """Queue a changed request, and the cards of a changed pod."""
        key = split_key(change)
        if change.path == KAI_BIND_REQUESTS:
            self._request_changed(key, change)
        elif change.path == PODS and (_MARK in change.value or (PODS, key) in self._cards):
            self._pod_changed(key, change)

    def _request_changed(self, key: Key, change: WatchEvent) -> None:
        request = (self.decoded(change.value) or {}) if change.type != "DELETED" else {}
        is_open = bool(request) and not _is_answered(request)
        self._note(self._asked, (KAI_BIND_REQUESTS, key), _asked_cards(request) if is_open else ())
        if is_open:
            self.queue.add(key)

    def _pod_changed(self, key: Key, change: WatchEvent) -> None:
        pod = (self.decoded(change.value) or {}) if change.type != "DELETED" else {}
        cards = tuple(_cards_of(pod)) if pod else ()
        if key[0] == RESERVATION_NAME:
            known = self._cards.pop((PODS, key), ())
            for card in known:
                self._holders.pop(card, None)
            if cards:
                self._cards[PODS, key] = cards
                self._holders.update((card, key) for card in cards)
            for card in {*known, *cards}:
                self._look_at(card)
            return
        is_used = bool(pod) and (pod.get("status") or {}).get("phase") not in _ENDED
        self._note(self._users, (PODS, key), cards if is_used else ())

    def _note(
        self, held: dict[str, dict[Key, None]], what: tuple[str, Key], cards: tuple[str, ...]
    ) -> None:
        """Note the cards that an object has or asks for now, and look at those it had before."""
        known = self._cards.pop(what, ())
        if cards:
            self._cards[what] = cards
        for card in known:
            held.get(card, {}).pop(what[1], None)
            if not held.get(card, True):
                del held[card]
        for card in cards:
            held.setdefault(card, {})[what[1]] = None
        for card in {*known} - {*cards}:
            self._look_at(card)

    def _look_at(self, card: str) -> None:
        self.queue.add(("", card))

    def sync(self, key: Key) -> None:
        """Carry out a request, or give up a card that no pod uses."""
        if not key[0]:
            for request in [*self._asked.get(key[1], ())]:
                self.queue.add(request)
            self._give_up(key[1])
            return
        request = self.api.get(KAI_BIND_REQUESTS, *key)
        if request is None or request["metadata"].get("deletionTimestamp"):
            return
        if _is_answered(request):
            return
        # The definition lets it be absent.
        request = {**request, "spec": request.get("spec") or {}}
        pod = self.api.get(PODS, key[0], request["spec"].get("podName") or key[1])
        try:
            if not self._bind(request, pod):
                return
        except (RequestRefused, ApiError) as problem:
            self._answer(request, pod, FAILED, str(problem))
        else:
            self._answer(request, pod, SUCCEEDED, "")

    def _bind(self, request: Tree, pod: Tree | None) -> bool:
        """Bind the pod of a request; False while its cards are not held yet."""
        spec = request["spec"]
        node = str(spec.get("selectedNode") or "")
        if pod is None:
            raise RequestRefused(f"pod {spec.get('podName')!r} does not exist")
        if pod["spec"].get("nodeName"):
            return True
        if self.api.get(NODES, "", node) is None:
            raise RequestRefused(f"node {node!r} does not exist")
        cards = _asked_cards(request)
        if spec.get("receivedResourceType") == FRACTION and not cards:
            raise RequestRefused("no selectedGPUGroups for a pod with a part of a GPU")
        held = [self._is_held(card, node, pod) for card in cards]
        if not all(held):
            return False
        meta = pod["metadata"]
        kind = str(spec.get("receivedResourceType") or "")
        notes = {**(meta.get("annotations") or {}), RECEIVED: kind}
        meta["annotations"] = {**notes, **_predicted(spec)}
        if cards:
            meta["labels"] = {**(meta.get("labels") or {}), **card_labels(cards)}
        self._binding.bind(self.api.update(PODS, pod), node)
        return True

    def _answer(self, request: Tree, pod: Tree | None, phase: str, reason: str) -> None:
        status = {"phase": phase, **({"reason": reason} if reason else {})}
        self.api.update_status(KAI_BIND_REQUESTS, {**request, "status": status})
        if pod is None:
            return
        node = request["spec"].get("selectedNode") or ""
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        if reason:
            text = f"Failed to bind pod {name} to node {node}: {reason}"
            self.recorder.record(pod, self.name, NOT_BOUND, text, type="Warning")
        else:
            text = f"Pod bound successfully to node {node}"
            self.recorder.record(pod, self.name, BOUND, text)

    # Cards.

    def _is_held(self, card: str, node: str, pod: Tree) -> bool:
        """Whether a pod holds a card; if there is none it is created."""
        key = self._holders.get(card)
        holder = None if key is None else self.api.get(PODS, *key)
        if holder is None:
            self.api.create(PODS, reservation_pod(card, node, pod["spec"].get("tolerations")))
            return False
        where, phase = holder["spec"].get("nodeName"), (holder.get("status") or {}).get("phase")
        name = holder["metadata"]["name"]
        if where != node:
            raise RequestRefused(f"card {card} is one of node {where}")
        if phase in _ENDED:
            self._delete(holder)
            raise RequestRefused(f"GPU reservation pod {name} has ended ({phase})")
        if phase != "Running" or holder["metadata"].get("deletionTimestamp"):
            return False
        notes = holder["metadata"].get("annotations") or {}
        if DEVICE_ID_KEY not in notes:
            index = self._free_index(node)
            holder["metadata"]["annotations"] = {**notes, DEVICE_ID_KEY: str(index)}
            self.api.update(PODS, holder)
        return True

    def _free_index(self, node: str) -> int:
        used = set()
        for key in self._holders.values():
            holder = self.api.get(PODS, *key)
            if holder is not None and holder["spec"].get("nodeName") == node:
                used.add((holder["metadata"].get("annotations") or {}).get(DEVICE_ID_KEY))
        return next(index for index in range(len(used) + 1) if str(index) not in used)

    def _give_up(self, card: str) -> None:
        """Delete the pod that holds a card, unless a pod has a part of it, or is to get one."""
        if self._users.get(card) or self._asked.get(card):
            return
        key = self._holders.get(card)
        holder = None if key is None else self.api.get(PODS, *key)
        if holder is not None and not holder["metadata"].get("deletionTimestamp"):
            self._delete(holder)

    def _delete(self, holder: Tree) -> None:
        meta = holder["metadata"]
        once = DeleteOptions(grace_s=0, uid=meta["uid"])
        self.api.delete(PODS, meta["namespace"], meta["name"], once)


def reservation_pod(card: str, node: str, tolerations: object) -> Tree:
    """The pod that holds a card of a node. Its name is that of KAI's binder."""
    digest = hashlib.sha256(f"{node}/{card}".encode()).hexdigest()[:16]
    whole = {GPU: "1"}
    container = {
        "name": "resource-reservation",
        "image": "resource-reservation",
        "resources": {"limits": whole, "requests": whole},
    }
    spec: Tree = {"nodeName": node, "containers": [container]}
    if tolerations:
        spec["tolerations"] = tolerations
    labels = {"app": RESERVATION_NAME, CARD_LABEL: card}
    meta = {"name": f"gpu-reservation-{digest}", "namespace": RESERVATION_NAME, "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _is_answered(request: Tree) -> bool:
    return (request.get("status") or {}).get("phase") in (SUCCEEDED, FAILED)


def _asked_cards(request: Tree) -> tuple[str, ...]:
    return tuple((request.get("spec") or {}).get("selectedGPUGroups") or ())


def _predicted(spec: Tree) -> dict[str, str]:
    """The annotation for the NUMA zones of a request, if it names any."""
    zones = [
        KaiZonePlacement(str(one.get("zone") or ""), dict(one.get("amount") or {}))
        for one in spec.get("predictedNUMAZones") or ()
    ]
    return {PREDICTED_ANNOTATION: zones_text(zones)} if zones else {}


def _cards_of(pod: Tree) -> Iterator[str]:
    labels: Iterable[tuple[str, str]] = (pod["metadata"].get("labels") or {}).items()
    for name, value in labels:
        if name == CARD_LABEL or name.startswith(f"{CARD_LABEL}/"):
            yield value
