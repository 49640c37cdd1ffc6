"""Extenders in scripts: their settings, calls and responses.

scheduler extenders=fit:filter:names,nice:prioritize:weight=2      ...:bind:ignorable:timeout=2s
scheduler extenders=gpu:filter:manages=example.com/gpu             or unchecked=example.com/gpu

answer web {"NodeNames": ["n1"]}        answer web/nice [{"Host": "n1", "Score": 10}]
answer web 500                          answer web failed connection refused
"""

from __future__ import annotations

from typing import Any

from stowplan.messages.effects import CallExtender
from stowplan.messages.events import Event, ExtenderFailed, ExtenderReplied
from stowplan.messages.extender_api import (
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderRequest,
    redact_password,
)

VERBS = ("filter", "prioritize", "preempt", "bind")


def configured(text: str) -> list[dict[str, Any]]:
    """Extender configurations from `NAME:SETTING...,NAME:SETTING...`."""
    return [_one(*words.split(":")) for words in text.split(",") if words]


def _one(name: str, *settings: str) -> dict[str, Any]:
    tree: dict[str, Any] = {"urlPrefix": f"http://{name}"}
    for setting in settings:
        key, _, value = setting.partition("=")
        if key in VERBS:
            tree[f"{key}Verb"] = key
        elif key == "names":
            tree["nodeCacheCapable"] = True
        elif key == "ignorable":
            tree["ignorable"] = True
        elif key == "weight":
            tree["weight"] = int(value)
        elif key == "timeout":
            tree["httpTimeout"] = value
        else:
            assert key in ("manages", "unchecked"), setting
            managed = {"name": value, "ignoredByScheduler": key == "unchecked"}
            tree["managedResources"] = [managed]
    return tree


def caller(question: ExtenderRequest) -> str:
    """Name of the extender that is called."""
    return redact_password(question.extender.url_prefix).removeprefix("http://")


def written(effect: CallExtender) -> str:
    """A call on one line."""
    question, body = effect.question, effect.question.body
    who = f"ask {caller(question)} to {question.verb.value}"
    late = "" if effect.timeout_s == 5 else f" within {effect.timeout_s:g}s"
    if isinstance(body, ExtenderBindingArgs):
        return f"{who} {body.pod_name}: {body.node}{late}"
    if isinstance(body, ExtenderArgs):
        names = body.node_names
        if names is None:
            trees = (n if isinstance(n, dict) else None for n in body.nodes or ())
            named = zip(trees, body.nodes or (), strict=True)
            whole = (t["metadata"]["name"] if t else getattr(n, "name", "") for t, n in named)
            return f"{who} {body.pod.name}: {', '.join(whole)} (whole){late}"
        return f"{who} {body.pod.name}: {', '.join(names)}{late}"
    victims = (
        f"{node} without {' and '.join(pod.name for pod in one.pods)}"
        for node, one in sorted(body.victims.items())
    )
    return f"{who} for {body.pod.name}: {', '.join(victims)}{'' if body.is_meta else ' (whole)'}"


def answer(effect: CallExtender, first: str, rest: tuple[str, ...]) -> Event:
    """Outcome of a call."""
    if first == "failed":
        return ExtenderFailed(effect.effect, effect.uid, " ".join(rest))
    if first.isdecimal():
        return ExtenderReplied(effect.effect, effect.uid, int(first))
    body = " ".join((first, *rest)).encode()
    return ExtenderReplied(effect.effect, effect.uid, 200, body)
