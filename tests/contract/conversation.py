"""A recorded conversation of kube-scheduler with extenders, and the machine in its place.

The machine is shown what the tester did, its calls are answered as they were recorded, and what it
asks for is carried out by `Store`. Everything happens in virtual time.

What an HTTP client makes of an answer is taken from the recording too: `Post "URL": ...` where
there was none, redirects followed, bodies unpacked.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from heapq import heappop, heappush
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from stowplan.assembly.build import configuration_of, scheduler_for
from stowplan.cycle import Attempt
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.effects import Effect
from stowplan.messages.events import Event
from stowplan.messages.extender_api import (
    ExtenderBindingArgs,
    ExtenderRequest,
    body_tree,
    encode_body,
)
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.encoding.json_codec import convert
from stowplan.objects.pod import Pod
from tests.contract.api import Api, Tree

# The modules that choose one of several nodes; one of them goes by the name of its function.
CHOOSING: tuple[Any, ...] = tuple(
    import_module(f"stowplan.cycle.{name}") for name in ("decision", "extender_consultation")
)
DATA = Path(__file__).parent / "data" / "extender.jsonl.gz"
CUT = "server closed the connection without an answer"
NO_REPLY = "client closed the connection before the answer"
READING_LATE = (
    "context deadline exceeded (Client.Timeout or context cancellation while reading body)"
)


def recordings() -> list[Tree]:
    """Every line of the recording."""
    with gzip.open(DATA, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def configured(recording: Tree) -> str:
    """The configuration of a recording, with something in place of certificates and keys."""
    text = json.dumps(recording["config"])
    return re.sub(r'"<(ca|otherca|cli)-(crt|key)>"', '"AAAA"', text)


NOT_OFFERED = "an extender returns whole nodes that it was not offered"
BOUND_ALL_THE_SAME = "an extender has bound a pod and said that it could not"


def deliberate(recording: Tree) -> str:
    """Which of our deliberate differences a conversation runs into, "" for none.

    That is told by what was said, not by the name of the scenario: each difference is a rule.
    """
    bindings: dict[str, bool] = {}
    for exchange in recording["exchanges"]:
        if exchange["from"] != "scheduler" or exchange["to"] == "apiserver":
            continue
        asked = exchange.get("request", {}).get("body") or {}
        response = exchange.get("response") or {}
        reply_body = response.get("body")
        if "PodName" in asked:
            is_whole = "end" not in exchange and "stalled_after" not in response
            is_good = (
                isinstance(reply_body, dict)
                and not reply_body.get("Error")
                and "$text" not in reply_body
            )
            is_bound = response.get("status") == 200 and is_whole and is_good
            bindings[asked["PodName"]] = is_bound
        elif (
            "NodeNames" in asked and isinstance(reply_body, dict) and _strangers(asked, reply_body)
        ):
            return NOT_OFFERED
    ours = {write[1] for write in recorded_writes(recording) if write[0] == "bind"}
    nodes = {name: pod[0] for name, pod in recorded_pods(recording).items()}
    for name, is_done in bindings.items():
        if not is_done and nodes.get(name) and name not in ours:
            return BOUND_ALL_THE_SAME
    return ""


def _strangers(asked: Tree, reply_body: Tree) -> set[str]:
    """The nodes that an answer returns whole without having been offered them."""
    offered = set(asked["NodeNames"] or ())
    offered |= {_name_of(node) for node in (asked["Nodes"] or {}).get("items") or ()}
    returned = next((value for key, value in reply_body.items() if key.lower() == "nodes"), None)
    if not isinstance(returned, dict):
        return set()
    return {_name_of(node) for node in returned.get("items") or ()} - offered


def _name_of(node: Any) -> str:
    meta = node.get("metadata") if isinstance(node, dict) else None
    return str(meta.get("name", "")) if isinstance(meta, dict) else ""


class Different(AssertionError):
    """The machine did something else than kube-scheduler."""


class Symbols:
    """The symbols of a recording, each standing for one value of ours."""

    def __init__(self) -> None:
        self.meaning: dict[str, str] = {}

    def agree(self, recorded: Any, ours: Any) -> bool:
        """True when the two are one, lists of nodes in any order."""
        if isinstance(recorded, str) and recorded.startswith("<") and recorded.endswith(">"):
            if recorded.startswith("<time"):
                return isinstance(ours, str)
            return self.meaning.setdefault(recorded, ours) == ours
        if isinstance(recorded, dict) and isinstance(ours, dict):
            if recorded.keys() != ours.keys():
                return False
            return all(
                key == "managedFields" or self.agree(value, ours[key])
                for key, value in recorded.items()
            )
        if isinstance(recorded, list) and isinstance(ours, list | tuple):
            pairs = zip(_sorted(recorded), _sorted(ours), strict=False)
            return len(recorded) == len(ours) and all(self.agree(*pair) for pair in pairs)
        return bool(recorded == ours)

    def put(self, text: str) -> str:
        """A recorded text with the values of ours."""
        for symbol, value in self.meaning.items():
            text = text.replace(symbol, value)
        return text


def _sorted(values: Iterable[Any]) -> list[Any]:
    """Nodes and names of nodes by name; whatever else keeps its order."""

    def key(value: Any) -> str:
        if isinstance(value, str):
            return value
        return str(value.get("metadata", {}).get("name", "")) if isinstance(value, dict) else ""

    return sorted(values, key=key)


class Conversation:
    """One recording being played. writes: what the machine has written. is_tied: the outcome
    hangs on a draw, since it has come out in several ways, or since our choice, when it was made,
    was one among equals.
    """

    def __init__(self, recording: Tree, *, is_strict: bool = True) -> None:
        """is_strict: calls that were not recorded are a difference; else nobody answers them."""
        self.recording = recording
        self.is_strict = is_strict
        self.api = Api()
        self.symbols = Symbols()
        self.now = 0
        self.writes: set[tuple[Any, ...]] = set()
        configuration, registry = configuration_of(configured(recording), "recording")
        self.scheduler = scheduler_for(configuration, registry, engine="walk")
        exchanges = recording["exchanges"]
        self.calls = [e for e in exchanges if e["from"] == "scheduler" and e["to"] != "apiserver"]
        self.end = max(round(e["at"] * SECOND) for e in exchanges)
        self._event_queue: list[tuple[int, int, Event | Tree | None]] = []
        # Bindings that an extender makes just before it answers, by the number of the call.
        self._deeds: dict[int, tuple[str, str, str]] = {}
        self._reached = {call["to"] for call in self.calls if "request" in call}
        self._n_planned = 0
        self._namespace = f"x-{recording['scenario']}"
        self.is_tied = not {"pods", "writes"}.isdisjoint(recording.get("unstable") or ())

    # Time.

    def _plan(self, at: int, what: Event | Tree | None) -> None:
        self._n_planned += 1
        heappush(self._event_queue, (at, self._n_planned, what))

    def play(self) -> None:
        """Raises Different."""
        with pytest.MonkeyPatch.context() as patch:
            for module in CHOOSING:
                patch.setattr(module, "break_tie", partial(self._chosen, module.break_tie))
            self._play()

    def _chosen(self, choose: Callable[..., int], attempt: Attempt, best: Any, *how: Any) -> int:
        self.is_tied |= len(best) > 1
        return choose(attempt, best, *how)

    def _play(self) -> None:
        for entry in self.recording["setup"]:
            self.api.create(entry["path"], entry["body"])
        self._call([])
        for exchange in self.recording["exchanges"]:
            if exchange["from"] == "driver" and "request" in exchange:
                self._plan(round(exchange["at"] * SECOND), exchange)
        # Retries are up to a second later than with us, or earlier.
        last = self.end + 2 * SECOND
        while self._event_queue:
            at, _, what = heappop(self._event_queue)
            if at > last:
                break
            if not self.calls:
                last = min(last, max(at, self.end) + SECOND // 2)
            self.now = max(self.now, at)
            if isinstance(what, happened.ExtenderReplied) and what.effect in self._deeds:
                self.api.bind(*self._deeds.pop(what.effect))
            if isinstance(what, dict):
                self._driver(what["request"])
                self._call([])
            else:
                self._call([] if what is None else [what])

    def _driver(self, request: Tree) -> None:
        if request["method"] == "POST":
            self.api.create(request["path"], request["body"])
        else:
            self.api.label(request["path"], request["body"])

    def _call(self, events: list[Event]) -> None:
        # What an extender says is told before what the watch shows of it.
        happened_now: list[Event] = events or list(self._pending_events())
        while happened_now:
            effects = self.scheduler.handle(happened_now, self.now)
            self.scheduler.validate()
            for effect in effects:
                self._carry_out(effect)
            happened_now = list(self._pending_events())
        self._settle()

    def _settle(self) -> None:
        for effect in self.scheduler.handle([happened.Tick()], self.now):
            self._carry_out(effect)

    def _pending_events(self) -> Iterator[Event]:
        while self.api.watch:
            yield self.api.watch.popleft()

    # Effects.

    def _carry_out(self, effect: Effect) -> None:
        match effect:
            case to_do.Bind():
                self.writes.add(("bind", effect.name, effect.node))
                self.api.bind(effect.namespace, effect.name, effect.node)
                self._plan(self.now, happened.BindDone(effect.effect, effect.uid))
            case to_do.PatchStatus():
                self._patch(effect)
            case to_do.RecordEvent():
                self.writes.add(("event", effect.name, effect.reason, effect.note))
            case to_do.Evict():
                self.writes.add(("delete", effect.name))
                self.api.evict(effect)
                self._plan(self.now, happened.EvictDone(effect.effect, effect.uid))
            case to_do.ReadPod():
                tree = self.api.pod(effect.namespace, effect.name)
                pod = happened.PodRead(effect.effect, effect.uid, convert(tree, Pod))
                self._plan(self.now, pod)
            case to_do.CallExtender():
                self._ask(effect)
            case to_do.Wake():
                self._plan(effect.at, None)
            case _:
                assert isinstance(effect, to_do.Cancel), effect

    def _patch(self, effect: to_do.PatchStatus) -> None:
        before = self.api.pod(effect.namespace, effect.name)["status"]
        self.api.patch_status(effect)
        after = self.api.pod(effect.namespace, effect.name)["status"]
        if before != after:
            self.writes.add(("status", effect.name, *_condition_fields(after)))

    # Calls.

    def _ask(self, effect: to_do.CallExtender) -> None:
        question = effect.question
        exchange = self._recorded(question)
        if exchange is None and (self.now > self.end or not self.is_strict):
            return
        if exchange is None:
            reply: Event | None = happened.ExtenderFailed(
                effect.effect, effect.uid, self._question_text(question)
            )
        else:
            reply = self._reply(effect, exchange)
        if isinstance(question.body, ExtenderBindingArgs) and exchange is not None:
            self._extender_binds(effect.effect, question.body, is_answered=reply is not None)
        if reply is not None:
            seconds = 0.0 if exchange is None else exchange.get("seconds", 0.0)
            self._plan(self.now + round(seconds * SECOND), reply)

    def _recorded(self, question: ExtenderRequest) -> Tree | None:
        """The exchange that this call is, None where nobody listens; raises Different."""
        url = question.extender.url(question.verb)
        host, _, path = url.partition("//")[2].rpartition("@")[2].partition("/")
        name = host.strip("<>").removeprefix("extender-")
        body = body_tree(question.body, self.api.encoded)
        assert json.loads(encode_body(question.body, self.api.encoded)) == json.loads(
            json.dumps(body)
        )
        if name == "down":
            return None
        here = [call for call in self.calls if call["to"] == name]
        if name not in self._reached or (not here and self.now > self.end):
            self.calls = [call for call in self.calls if call["to"] != name]
            return None
        for call in here:
            request = call["request"]
            loose = dict(body)
            if self.is_tied and "Node" in body:
                loose["Node"] = request["body"].get("Node")
            is_path = request["path"] == "/" + path.partition("?")[0]
            if is_path and self._is_same(request["body"], loose):
                self.calls.remove(call)
                return self._redirected(call)
        if not self.is_strict:
            return None
        raise Different(f"got {url} {json.dumps(body)}, wanted one of {json.dumps(here)[:3000]}")

    def _is_same(self, recorded: Tree, ours: Tree) -> bool:
        before = dict(self.symbols.meaning)
        if list(recorded) == list(ours) and self.symbols.agree(recorded, ours):
            return True
        self.symbols.meaning = before
        return False

    def _redirected(self, call: Tree) -> Tree:
        if call.get("response", {}).get("status") != 307:
            return call
        return self.calls.pop(0)

    def _question_text(self, question: ExtenderRequest) -> str:
        """What an HTTP client says that gets no connection: as users were told it."""
        texts = (write[3] for write in recorded_writes(self.recording) if write[0] == "event")
        url = question.extender.url(question.verb)
        return next((text for text in texts if text.startswith("Post")), f'Post "{url}": refused')

    def _reply(self, effect: to_do.CallExtender, exchange: Tree) -> Event | None:
        end, response = exchange.get("end"), exchange.get("response")
        url = effect.question.extender.url(effect.question.verb)
        if end == NO_REPLY:
            return None
        if response is None:
            assert end == CUT, end
            return happened.ExtenderFailed(effect.effect, effect.uid, f'Post "{url}": EOF')
        if "stalled_after" in response:
            return happened.ExtenderFailed(effect.effect, effect.uid, READING_LATE)
        body = response.get("body")
        if isinstance(body, dict) and "$text" in body:
            text = body["$text"]
        else:
            text = "" if body is None else json.dumps(body)
        self._name_the_rest(text)
        reply_body = self.symbols.put(text).encode()
        return happened.ExtenderReplied(effect.effect, effect.uid, response["status"], reply_body)

    def _name_the_rest(self, text: str) -> None:
        """The one pod that was there and has not been named yet is the one that is named now."""
        symbols = {f"<uid{i}>" for i in range(1, 12)}
        unknown = [s for s in symbols if s in text and s not in self.symbols.meaning]
        if unknown:
            known = set(self.symbols.meaning.values())
            uids = [
                tree["metadata"]["uid"]
                for (kind, *_), tree in self.api.objects.items()
                if kind == "Pod" and tree["metadata"]["uid"] not in known
            ]
            (self.symbols.meaning[unknown[0]],) = uids

    def _extender_binds(self, call: int, body: ExtenderBindingArgs, *, is_answered: bool) -> None:
        """Where the pod was bound in the end, and not by the scheduler, this extender did it."""
        final = next(p for p in self.recording["pods"] if p["name"] == body.pod_name)
        node = final["spec"]["nodeName"]
        is_ours = any(w[:2] == ("bind", body.pod_name) for w in recorded_writes(self.recording))
        if node is None or is_ours:
            return
        deed = body.pod_namespace, body.pod_name, body.node if self.is_tied else node
        if is_answered:
            self._deeds[call] = deed
        else:
            self.api.bind(*deed)

    # What is compared.

    def differences(self) -> list[str]:
        """What came out otherwise than with kube-scheduler."""
        found = []
        if self.calls and "calls" not in self.recording.get("unstable", ()):
            found.append(f"calls that were not made: {self.calls}")
        recorded = {self._as_ours(write) for write in recorded_writes(self.recording)}
        ours = {self._as_ours(write) for write in self.writes}
        found += [f"not written: {write}" for write in sorted(recorded - ours, key=str)]
        found += [f"written: {write}" for write in sorted(ours - recorded, key=str)]
        pods = [
            sorted((self._as_ours((name, *reply_body)) for name, reply_body in of.items()), key=str)
            for of in (recorded_pods(self.recording), self.pods())
        ]
        if pods[0] != pods[1]:
            found.append(f"pods: got {pods[1]}, wanted {pods[0]}")
        return found

    def _as_ours(self, reply_body: tuple[Any, ...]) -> tuple[Any, ...]:
        """With our values for symbols; where equals were drawn from, all nodes are one."""
        uids = {"<uid1>": self.api.created[-1]} | self.symbols.meaning
        texts = []
        for text in reply_body:
            if isinstance(text, str):
                for symbol, value in uids.items():
                    text = text.replace(symbol, value)
                if self.is_tied:
                    text = re.sub(r"\b([nv])\d\b", r"\1*", text)
            texts.append(text)
        return tuple(texts)

    def pods(self) -> dict[str, tuple[Any, ...]]:
        """Every pod at the end: its node, and what its status says."""
        return {
            name: (tree["spec"].get("nodeName"), *_condition_fields(tree["status"]))
            for (kind, _, name), tree in self.api.objects.items()
            if kind == "Pod"
        }


def _condition_fields(status: Tree) -> tuple[str | None, str | None, str | None]:
    """Reason and message of the condition PodScheduled, and the nomination."""
    found = [c for c in status.get("conditions") or () if c["type"] == "PodScheduled"]
    condition = found[0] if found else {}
    return (
        condition.get("reason"),
        condition.get("message"),
        status.get("nominatedNodeName") or None,
    )


def recorded_pods(recording: Tree) -> dict[str, tuple[Any, ...]]:
    """Every pod at the end of a recording."""
    return {
        pod["name"]: (pod["spec"].get("nodeName"), *_condition_fields(pod["status"]))
        for pod in recording["pods"]
    }


def recorded_writes(recording: Tree) -> set[tuple[Any, ...]]:
    """What the scheduler wrote, as `Conversation.writes` has it; a status as it was afterwards."""
    found: set[tuple[Any, ...]] = set()
    statuses: dict[str, Tree] = {}
    for exchange in recording["exchanges"]:
        if exchange["from"] != "scheduler" or exchange["to"] != "apiserver":
            continue
        request = exchange["request"]
        place = request["path"].split("/")
        body = request.get("body") or {}
        if place[-1] == "binding":
            found.add(("bind", place[-2], body["target"]["name"]))
        elif request["method"] == "DELETE":
            found.add(("delete", place[-1]))
        elif place[-1] == "events":
            found.add(("event", body["regarding"]["name"], body["reason"], body["note"]))
        elif place[-1] == "status":
            status = statuses.setdefault(place[-2], {"conditions": [{"type": "PodScheduled"}]})
            for condition in body["status"].get("conditions", ()):
                if condition["type"] == "PodScheduled":
                    status["conditions"][0] |= condition
            status |= {k: v for k, v in body["status"].items() if k == "nominatedNodeName"}
            if _condition_fields(status) != (None, None, None):
                found.add(("status", place[-2], *_condition_fields(status)))
    return found
