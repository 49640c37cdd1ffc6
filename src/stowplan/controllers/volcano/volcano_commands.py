"""Commands of bus.volcano.sh: what `vcctl` asks for, such as AbortJob, ResumeJob or CloseQueue.

Source: volcano master of 2026-08-20, pkg/controllers/job/job_controller_handler.go
(processNextCommand), pkg/controllers/queue/queue_controller.go (handleCommand).
"""

from __future__ import annotations

from stowplan.apis.machinery.errors import ApiError
from stowplan.controller_runtime.object_index import Key, split_key
from stowplan.controllers.volcano.volcano_kinds import VOLCANO_COMMANDS
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.store import DeleteOptions, Store, WatchEvent


class VolcanoCommands:
    """Commands for objects of one kind, each carried out once.

    A Command is deleted before its action is returned, so none is carried out twice.
    """

    def __init__(self, api: Store, api_version: str, kind: str, *, namespaced: bool) -> None:
        self._api = api
        self._target = api_version, kind
        self._is_namespaced = namespaced
        self._stored: dict[Key, list[Key]] = {}
        self._actions: dict[Key, list[str]] = {}

    def observe(self, change: WatchEvent, command: Tree | None) -> Key | None:
        """The object that a new Command names; None for other changes."""
        target = (command or {}).get("target") or {}
        given = target.get("apiVersion"), target.get("kind")
        if change.path != VOLCANO_COMMANDS or change.type != "ADDED" or given != self._target:
            return None
        own = split_key(change)
        key = own[0] if self._is_namespaced else "", str(target.get("name") or "")
        self._stored.setdefault(key, []).append(own)
        return key

    def pending(self, key: Key) -> list[str]:
        """The actions to carry out on an object, oldest first; they stay so until `done`."""
        actions = self._actions.setdefault(key, [])
        commands = self._stored.get(key, [])
        while commands:
            found = self._api.get(VOLCANO_COMMANDS, *commands[0])
            if found is not None and self._deleted(found):
                actions.append(str(found.get("action") or ""))
            commands.pop(0)
        self._stored.pop(key, None)
        return actions

    def _deleted(self, command: Tree) -> bool:
        """Delete a Command; False if another has done so."""
        meta = command["metadata"]
        try:
            options = DeleteOptions(uid=meta["uid"])
            self._api.delete(VOLCANO_COMMANDS, meta["namespace"], meta["name"], options)
        except ApiError as error:
            if error.code not in (404, 409):
                raise
            return False
        return True

    def done(self, key: Key) -> None:
        """The first pending action of an object has been carried out."""
        actions = self._actions.get(key, [])
        if actions:
            actions.pop(0)
        if not actions:
            self.forget(key)

    def forget(self, key: Key) -> None:
        """Drop the pending actions of an object, such as one that is gone."""
        self._actions.pop(key, None)
