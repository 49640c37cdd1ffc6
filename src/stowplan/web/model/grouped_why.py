"""Why a pod is where it is, grouped by rule and reason.

The explanation of one pod has an entry per node (5.7 MB of JSON for 5,000 nodes); people read how
many nodes each rule refuses, what they lack, and a few examples.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from stowplan.cycle.explanation import Explanation, RuleRefusal
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.quantity import nanos

EXAMPLES_MAX = 5
# The details of NodeResourcesFit, the rule that states amounts.
_AMOUNTS = re.compile(r"(?P<resource>\S+): needs (?P<need>\S+), (?P<have>\S+) free of \S+")
_RESOURCE = re.compile(r"Insufficient (\S+)")
_TOO_MANY_PODS = "Too many pods"


class _Group:
    """Nodes that a rule refuses for one reason."""

    def __init__(self, refusal: RuleRefusal) -> None:
        self.refusal = refusal
        self.n_first = 0
        self.n_nodes = 0
        self.examples: list[Tree] = []
        self._resources = _resources_of(refusal)
        self._needs: dict[str, str] = {}
        self._haves: dict[str, set[str]] = {}

    def add(self, node: str, refusal: RuleRefusal, *, is_first: bool) -> None:
        self.n_nodes += 1
        self.n_first += is_first
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append({"node": node, "details": list(refusal.details)})
        for detail in refusal.details if self._resources else ():
            found = _AMOUNTS.match(detail)
            if found is not None and found["resource"] in self._resources:
                self._needs[found["resource"]] = found["need"]
                self._haves.setdefault(found["resource"], set()).add(found["have"])

    def tree(self) -> Tree:
        tree: Tree = {
            "rule": self.refusal.plugin,
            "reason": ", ".join(self.refusal.reasons),
            "code": self.refusal.code,
            "first": self.n_first,
            "nodes": self.n_nodes,
            "examples": self.examples,
        }
        amounts = [self._amount(one) for one in self._resources if one in self._haves]
        if amounts:
            tree["amounts"] = amounts
        if len(amounts) == 1:
            tree |= {"need": amounts[0]["need"], "have": amounts[0]["have"]}
        return tree

    def _amount(self, resource: str) -> Tree:
        haves = sorted(self._haves[resource], key=_value)
        have = {"least": _plain(haves[0]), "most": _plain(haves[-1])}
        return {"resource": resource, "need": _plain(self._needs[resource]), "have": have}


def _resources_of(refusal: RuleRefusal) -> list[str]:
    """The resources that a refusal is about."""
    found = []
    for reason in refusal.reasons:
        match = _RESOURCE.fullmatch(reason)
        if match is not None:
            found.append(match[1])
        elif reason == _TOO_MANY_PODS:
            found.append("pods")
    return found


def grouped_rules(explanation: Explanation) -> list[Tree]:
    """The refusals of all nodes by rule and reason: those that count on most nodes first."""
    groups: dict[tuple[str, tuple[str, ...]], _Group] = {}
    for node in explanation.nodes:
        if node.first is None:
            continue
        for refusal in _all_of(node.failing, node.first):
            key = refusal.plugin, refusal.reasons
            group = groups.get(key)
            if group is None:
                group = groups[key] = _Group(refusal)
            is_first = key == (node.first.plugin, node.first.reasons)
            group.add(node.name, refusal, is_first=is_first)
    found = sorted(groups.values(), key=lambda one: (-one.n_first, -one.n_nodes))
    return [group.tree() for group in found]


def _all_of(failing: Iterable[RuleRefusal], first: RuleRefusal) -> list[RuleRefusal]:
    """All refusals of a node; the first one also where its rule was not run alone."""
    found = list(failing)
    if not any(one.plugin == first.plugin and one.reasons == first.reasons for one in found):
        found.insert(0, first)
    return found


def why_tree(explanation: Explanation) -> Tree:
    """The explanation as JSON without its nodes; see `GET pods/NAMESPACE/NAME/why`."""
    plain = msgspec.to_builtins(
        msgspec.structs.replace(explanation, nodes=(), stranded_cards=(), simulation=None)
    )
    return {
        "pod": explanation.pod,
        "state": explanation.state,
        "node": explanation.current_node,
        "wouldGoTo": explanation.node,
        "scheduler": explanation.scheduler_name,
        "message": explanation.message,
        "nodes": len(explanation.nodes),
        "fitting": sum(node.fits for node in explanation.nodes),
        "rules": grouped_rules(explanation),
        "podRefusal": plain.get("podRefusal"),
        "changes": plain.get("changes", []),
        "notSearched": plain.get("notSearched", []),
        "scores": plain.get("scores", []),
        "preemption": plain.get("preemption"),
        "notes": plain.get("notes", []),
    }


def _plain(text: str) -> str:
    """A quantity as kubectl prints it: whole cores without the thousandths."""
    whole = text.removesuffix("000m")
    return whole if text != whole and whole not in ("", "-") else "0" if text == "0m" else text


def _value(text: str) -> int:
    """A quantity in billionths; free amounts may be negative."""
    return -nanos(text[1:]) if text.startswith("-") else nanos(text)
