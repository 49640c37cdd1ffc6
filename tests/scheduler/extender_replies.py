"""Random extender responses: anything that an extender may return, and no response at all."""

from __future__ import annotations

import json
from typing import Any

from stowplan.messages.effects import CallExtender
from stowplan.messages.events import Event, ExtenderFailed, ExtenderReplied
from stowplan.messages.extender_api import ExtenderArgs, ExtenderPreemptionArgs, ExtenderVerb
from stowplan.testing.generators.choices import RandomSource, chance, pick, random_int

EXTENDERS = (
    "fit:filter:names:timeout=3s",
    "fit:filter,nice:prioritize:names:weight=2,nicer:prioritize:weight=1:timeout=9s",
    "bind:bind:timeout=2s",
    "all:filter:prioritize:preempt:bind:names:weight=1:timeout=4s",
    "spare:filter:preempt:bind:ignorable:timeout=1s,fit:filter:names,last:preempt:names",
)
"""Extender settings, as in scripts."""

RUBBISH = (b"", b"no JSON", b"null", b"{}", b"[]", b'{"NodeNames":7}', b'{"NodeNames":["n')


def reply(rng: RandomSource, effect: CallExtender, *, calm: bool) -> Event:
    """Response of an extender, bind calls aside. calm: it keeps all nodes."""
    if not calm and chance(rng, 8):
        return ExtenderFailed(effect.effect, effect.uid, "no route to host")
    code = 200 if calm else pick(rng, (200, 200, 200, 200, 200, 500))
    if not calm and chance(rng, 8):
        return ExtenderReplied(effect.effect, effect.uid, code, pick(rng, RUBBISH))
    tree = _tree(rng, effect, calm=calm)
    if not calm and chance(rng, 8) and isinstance(tree, dict):
        tree["Error"] = "out of order"
    return ExtenderReplied(effect.effect, effect.uid, code, json.dumps(tree).encode())


def _tree(rng: RandomSource, effect: CallExtender, *, calm: bool) -> Any:
    body, verb = effect.question.body, effect.question.verb
    if isinstance(body, ExtenderPreemptionArgs):
        return {"NodeNameToMetaVictims": _victims(rng, body, calm=calm)}
    assert isinstance(body, ExtenderArgs)
    names = list(body.node_names or _names(body))
    if verb is ExtenderVerb.PRIORITIZE:
        return [{"Host": name, "Score": random_int(rng, -3, 12)} for name in names]
    kept = [name for name in names if calm or not chance(rng, 3)]
    if not calm and chance(rng, 10):
        kept.append(pick(rng, ("n0", "n1", "ghost")))
    out = {name: "not today" for name in names if name not in kept}
    tree: dict[str, Any] = {pick(rng, ("FailedNodes", "FailedAndUnresolvableNodes")): out}
    if body.node_names is not None:
        return tree | {"NodeNames": kept}
    return tree | {"Nodes": {"items": [{"metadata": {"name": name}} for name in kept]}}


def _names(body: ExtenderArgs) -> list[str]:
    return [
        node["metadata"]["name"] if isinstance(node, dict) else node.name
        for node in body.nodes or ()
    ]


def _victims(rng: RandomSource, body: ExtenderPreemptionArgs, *, calm: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for node, victims in body.victims.items():
        if not calm and chance(rng, 3):
            continue
        uids = [{"UID": pod.metadata.uid} for pod in victims.pods]
        if not calm and chance(rng, 10):
            uids = pick(rng, ([], [{"UID": "nobody"}]))
        found[node] = {"Pods": uids, "NumPDBViolations": 0}
    return found
