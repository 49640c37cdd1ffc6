"""Extenders of a simulated cluster: classes of users answer in their place, or nobody objects.

A class has methods named like the verbs, and each is asked about one node at a time:

    class Cards:
        url = "http://cards:9998"      # whom it speaks for; without: for whoever has no other
        simulated_s = 0.02             # how long each of its answers takes

        def filter(self, pod, node): ...             # True, False, or a text: why not
        def prioritize(self, pod, node): ...         # a whole number, 0 to 10 as agreed
        def preempt(self, pod, node, victims): ...   # True, False, or the pods that are to go
        def bind(self, pod, node): ...               # None, or a text: why not

Parameters are told by their names, `pods` has those on the node. What it does not have, and an
extender without a class, agrees. TimeoutError is for one that does not answer, ConnectionError for
one that cannot be reached; any other exception fails the call as an error of the server would, and
is a warning of the simulation.

The answers go through the protocol, as bodies that a real extender would have sent. Nodes are
returned by name only: that is all that anybody reads of them.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stowplan.assembly.plugin_files import run_file
from stowplan.framework import ContractError
from stowplan.framework.plugin_calls import failure_location, narrow_parameters, parameters_of
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.input_error import InputError
from stowplan.messages.effects import CallExtender
from stowplan.messages.extender_api import (
    OK_CODE,
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderPreemptionArgs,
    ExtenderRequest,
    ExtenderResponse,
    ExtenderVerb,
    HTTPExtender,
    redact_password,
)
from stowplan.objects.encoding.duration import SECOND
from stowplan.objects.node import Node
from stowplan.objects.pod import Pod
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import CREATED, SimulatedCluster
from stowplan.simulation.cluster.simulated_dispatcher import SimulatedReply
from stowplan.simulation.event_queue import EventQueue
from stowplan.testing.auditor import EXTENDER_BOUND

NOTE = "nobody answers in place of {}, so it agrees with everything: see --extender"
ExtenderSource = type[Any] | str | Path
"""A class that answers in place of an extender, or a file with such."""

METHOD_PARAMETERS = {
    ExtenderVerb.FILTER: ("pod", "node", "pods"),
    ExtenderVerb.PRIORITIZE: ("pod", "node", "pods"),
    ExtenderVerb.PREEMPT: ("pod", "node", "pods", "victims"),
    ExtenderVerb.BIND: ("pod", "node", "pods"),
}
_VERBS = {verb.value: verb for verb in ExtenderVerb}
_WANTED = {
    ExtenderVerb.FILTER: "True, False, or a text that says why not",
    ExtenderVerb.PRIORITIZE: "a whole number",
    ExtenderVerb.PREEMPT: "True, False, or a list of pods that are to go",
    ExtenderVerb.BIND: "None, or a text that says why not",
}


class ExtenderStandIn(msgspec.Struct):
    """What stands in for one extender. name: of the class, "" where nobody objects. n_calls: by
    verb; n_failed: calls that came to no answer."""

    extender: HTTPExtender
    name: str = ""
    takes_s: float = 0.0
    methods: Mapping[ExtenderVerb, Callable[..., Any]] = {}
    n_calls: Counter[str] = msgspec.field(default_factory=Counter)
    n_failed: int = 0

    @property
    def url(self) -> str:
        """Its address, for everybody to read."""
        return redact_password(self.extender.url_prefix)


class SimulatedExtenders:
    """Answers in place of the extenders of a configuration."""

    def __init__(
        self,
        world: SimulatedCluster,
        extenders: Sequence[HTTPExtender],
        classes: Sequence[type[Any]] = (),
    ) -> None:
        """Raises ContractError and InputError for classes that could not speak for any of them."""
        self._world = world
        self.stand_ins = {one.place: ExtenderStandIn(one) for one in extenders}
        self.warnings: list[str] = []
        taken: dict[int, type[Any]] = {}
        for kind in sorted(classes, key=lambda one: not hasattr(one, "url")):
            self._assign_class(kind, taken)

    def _assign_class(self, kind: type[Any], taken: dict[int, type[Any]]) -> None:
        where = f"extender {kind.__name__}"
        methods = _methods_of(kind)
        url = getattr(kind, "url", None)
        places = [
            place
            for place, stand_in in self.stand_ins.items()
            if (place not in taken if url is None else _same(url, stand_in.extender.url_prefix))
        ]
        if not places:
            known = [stand_in.url for stand_in in self.stand_ins.values()]
            got = "nobody left to speak for" if url is None else f"the url {url!r}"
            hint = did_you_mean(str(url), known)
            wanted = f"one of the configuration: {', '.join(known) or 'it has no extenders'}"
            raise InputError(where, "", got, wanted + (f" ({hint})" if hint else ""))
        for verb in methods:
            if not any(verb in self.stand_ins[place].extender.verbs for place in places):
                urls = ", ".join(self.stand_ins[place].url for place in places)
                raise ContractError(
                    f"{where}: {verb.value} would never be called: there is no {verb.value}Verb "
                    f"of {urls} in the configuration"
                )
        for place in places:
            if place in taken:
                both = f"{taken[place].__name__} and {kind.__name__}"
                raise InputError(where, "", f"{both} for {url!r}", "one of them")
            taken[place] = kind
            stand_in = self.stand_ins[place]
            stand_in.name, stand_in.takes_s = kind.__name__, _seconds(kind, where)
            stand_in.methods = _bound(kind, methods, where)

    @property
    def unanswered_urls(self) -> list[str]:
        """The addresses for which nobody speaks."""
        return [stand_in.url for stand_in in self.stand_ins.values() if not stand_in.name]

    def figures(self) -> list[dict[str, Any]]:
        """What each was asked, for a summary."""
        return [
            {
                "url": stand_in.url,
                "answered_by": stand_in.name or "agreement",
                "calls": {
                    verb.value: stand_in.n_calls[verb.value] for verb in stand_in.extender.verbs
                },
                "failed": stand_in.n_failed,
            }
            for stand_in in self.stand_ins.values()
        ]

    def answer(self, effect: CallExtender) -> SimulatedReply:
        """What comes of a call, and when."""
        question = effect.question
        stand_in = self.stand_ins[question.extender.place]
        stand_in.n_calls[question.verb.value] += 1
        takes = round(stand_in.takes_s * SECOND)
        try:
            reply = self._reply(stand_in, question)
        except TimeoutError:
            stand_in.n_failed += 1
            return SimulatedReply(None, None)
        except ConnectionError as failure:
            stand_in.n_failed += 1
            url = redact_password(question.extender.url(question.verb))
            text = str(failure) or "connect: connection refused"
            return SimulatedReply(lambda: ExtenderResponse(reason=f'Post "{url}": {text}'), takes)
        except ContractError as fault:
            stand_in.n_failed += 1
            text = str(fault)
            if not any(known.startswith(f"extender {stand_in.name}: ") for known in self.warnings):
                # An extender may be ignorable, so that nothing else would say it.
                self.warnings.append(text)
            return SimulatedReply(lambda: ExtenderResponse(reason=text), takes)
        stand_in.n_failed += takes > effect.timeout_s * SECOND
        if isinstance(question.body, ExtenderBindingArgs) and reply.body == EXTENDER_BOUND:
            body = question.body
            return SimulatedReply(lambda: self._bound(body), takes)
        return SimulatedReply(lambda: reply, takes)

    def _bound(self, body: ExtenderBindingArgs) -> ExtenderResponse:
        """Bind, as one that agrees to does just before it says so."""
        key = f"{body.pod_namespace}/{body.pod_name}"
        code = self._world.bind(key, body.pod_uid, body.node)
        if code == CREATED:
            return ExtenderResponse(OK_CODE, EXTENDER_BOUND)
        return ExtenderResponse(OK_CODE, msgspec.json.encode({"Error": f"the API answered {code}"}))

    def _reply(self, stand_in: ExtenderStandIn, question: ExtenderRequest) -> ExtenderResponse:
        body, ask = question.body, stand_in.methods.get(question.verb)
        asking = _SimulatedCall(self._world, stand_in, question.verb, ask)
        if isinstance(body, ExtenderBindingArgs):
            tree: Any = asking.bind(body)
        elif isinstance(body, ExtenderPreemptionArgs):
            tree = asking.preempt(body)
        elif question.verb is ExtenderVerb.FILTER:
            tree = asking.filter(body)
        else:
            tree = asking.prioritize(body)
        return ExtenderResponse(OK_CODE, msgspec.json.encode(tree))


class _SimulatedCall:
    """One question, put to a class node by node. ask: its method, None for one that agrees."""

    def __init__(
        self,
        world: SimulatedCluster,
        stand_in: ExtenderStandIn,
        verb: ExtenderVerb,
        ask: Callable[..., Any] | None,
    ) -> None:
        self._world = world
        self._name = stand_in.name
        self._verb = verb
        self._ask = ask
        self._pods: dict[str, list[Pod]] | None = None

    def filter(self, body: ExtenderArgs) -> dict[str, Any]:
        """Those that it keeps, and why it does not keep the others."""
        kept: list[str] = []
        reasons: dict[str, str] = {}
        for name in _names(body):
            said = True if self._ask is None else self._asked(body.pod, name)
            if said is True:
                kept.append(name)
            elif isinstance(said, str):
                reasons[name] = said
            elif said is not False:
                raise self._wrong(body.pod, name, said)
        tree: dict[str, Any] = {"FailedNodes": reasons}
        if body.node_names is not None:
            return tree | {"NodeNames": kept}
        return tree | {"Nodes": {"items": [{"metadata": {"name": name}} for name in kept]}}

    def prioritize(self, body: ExtenderArgs) -> list[dict[str, Any]]:
        """A score for each."""
        found = []
        for name in _names(body):
            score = 0 if self._ask is None else self._asked(body.pod, name)
            if isinstance(score, bool) or not isinstance(score, int):
                raise self._wrong(body.pod, name, score)
            found.append({"Host": name, "Score": score})
        return found

    def preempt(self, body: ExtenderPreemptionArgs) -> dict[str, Any]:
        """The candidates that it keeps, with those that are to go."""
        found = {}
        for name, victims in body.victims.items():
            said: Any = True
            if self._ask is not None:
                said = self._asked(body.pod, name, victims.pods)
            pods = victims.pods if said is True else said
            if said is False:
                continue
            if not isinstance(pods, list | tuple) or not all(isinstance(p, Pod) for p in pods):
                raise self._wrong(body.pod, name, said)
            uids = [{"UID": pod.metadata.uid} for pod in pods]
            found[name] = {"Pods": uids, "NumPDBViolations": victims.num_pdb_violations}
        return {"NodeNameToMetaVictims": found}

    def bind(self, body: ExtenderBindingArgs) -> dict[str, Any]:
        """Whether it binds."""
        pod = self._world.pods.get(f"{body.pod_namespace}/{body.pod_name}")
        if pod is None or pod.uid != body.pod_uid:
            return {"Error": f"there is no pod {body.pod_namespace}/{body.pod_name} of this uid"}
        said = None if self._ask is None else self._asked(pod, body.node)
        if said is not None and not isinstance(said, str):
            raise self._wrong(pod, body.node, said)
        return {} if said is None else {"Error": said or "refused"}

    def _asked(self, pod: Pod, name: str, victims: tuple[Pod, ...] = ()) -> Any:
        assert self._ask is not None
        node = self._world.nodes.get(name)
        if node is None:
            return False if self._verb is not ExtenderVerb.PRIORITIZE else 0
        return self._ask(pod, node, self._pods_on(name), list(victims))

    def _pods_on(self, name: str) -> list[Pod]:
        if self._pods is None:
            self._pods = {}
            for pod in self._world.pods.values():
                if pod.node_name:
                    self._pods.setdefault(pod.node_name, []).append(pod)
        return list(self._pods.get(name, ()))

    def _wrong(self, pod: Pod, node: str, said: object) -> ContractError:
        about = f"{self._verb.value} of pod {pod.key!r} on node {node!r}"
        wanted = _WANTED[self._verb]
        return ContractError(f"extender {self._name}: {about} gave {said!r}, wanted {wanted}")


class SimulatedExtenderFactory:
    """What answers in place of extenders, in one run or several. sources: as the user named them.
    notes: for whom nobody answers.
    """

    def __init__(
        self, extenders: Sequence[HTTPExtender], sources: Iterable[ExtenderSource] | ExtenderSource
    ) -> None:
        """Raises ContractError and InputError for classes that could never be asked."""
        self.sources: list[ExtenderSource] = []
        if isinstance(sources, str | Path | type):
            self.sources.append(sources)
        else:
            self.sources += sources
        self._classes = extender_classes(self.sources)
        self._extenders = extenders
        tried = SimulatedExtenders(SimulatedCluster(EventQueue()), extenders, self._classes)
        self.notes = [NOTE.format(url) for url in tried.unanswered_urls]

    def of(self, instance: SchedulerInstance) -> SimulatedExtenders:
        """Those that a scheduler asks from now on."""
        found = SimulatedExtenders(instance.world, self._extenders, self._classes)
        instance.dispatcher.extender = found.answer
        return found


def extender_classes(sources: Iterable[ExtenderSource]) -> list[type[Any]]:
    """The classes behind what a user names, in that order; raises ContractError."""
    found: list[type[Any]] = []
    for source in sources:
        if isinstance(source, str | Path):
            found += _classes_of_file(str(source))
        elif isinstance(source, type):
            found.append(source)
        else:
            raise ContractError(f"extenders: got {source!r}, wanted a class, or a file with one")
    return found


def _classes_of_file(path: str) -> Iterator[type[Any]]:
    module = run_file(path)
    own = [
        value
        for value in vars(module).values()
        if inspect.isclass(value) and value.__module__ == module.__name__
    ]
    speaking = [kind for kind in own if any(hasattr(kind, verb) for verb in _VERBS)]
    if not speaking:
        verbs = ", ".join(_VERBS)
        raise ContractError(f"{path}: defines no extender; wanted a class with one of {verbs}")
    yield from speaking


def _methods_of(kind: type[Any]) -> list[ExtenderVerb]:
    """The verbs that a class has; raises ContractError for what looks like one and is none."""
    where = f"extender {kind.__name__}"
    verbs = ", ".join(_VERBS)
    for name, value in vars(kind).items():
        hint = did_you_mean(name, _VERBS) if callable(value) and not name.startswith("_") else ""
        if hint and name not in _VERBS:
            raise ContractError(
                f"{where}: {name} would never be called, an extender has {verbs} ({hint})"
            )
    found = [verb for name, verb in _VERBS.items() if callable(getattr(kind, name, None))]
    if not found:
        raise ContractError(f"{where}: has nothing to say, wanted one of {verbs}")
    return found


def _seconds(kind: type[Any], where: str) -> float:
    takes = getattr(kind, "simulated_s", 0.0)
    is_number = isinstance(takes, int | float) and not isinstance(takes, bool)
    if not is_number or not 0 <= takes < float("inf"):
        raise ContractError(f"{where}: `simulated_s` is {takes!r}, wanted seconds, 0 or more")
    return float(takes)


def _bound(
    kind: type[Any], verbs: Iterable[ExtenderVerb], where: str
) -> dict[ExtenderVerb, Callable[..., Any]]:
    """The methods of an object of the class, each as a function of all that is on offer."""
    if parameters_of(kind):
        names = ", ".join(parameters_of(kind))
        raise ContractError(f"{where}: its constructor asks for {names}; nothing is on offer")
    try:
        made = kind()
    # Whatever a stranger's class raises, the user reads whose it is.
    except Exception as failure:
        text = f"{type(failure).__name__}: {failure}{failure_location(failure)}"
        raise ContractError(f"{where}: its constructor raised {text}") from failure
    return {verb: _fitted(getattr(made, verb.value), verb, where) for verb in verbs}


def _fitted(method: Callable[..., Any], verb: ExtenderVerb, where: str) -> Callable[..., Any]:
    offered = METHOD_PARAMETERS[verb]
    wanted = tuple(parameters_of(method))
    for name in wanted:
        if name not in offered:
            hint = did_you_mean(name, offered)
            more = f" ({hint})" if hint else ""
            raise ContractError(
                f"{where}: {verb.value}() asks for {name!r}; on offer are "
                f"{', '.join(offered)}{more}"
            )
    call = narrow_parameters(method, offered, wanted)

    def ask(pod: Pod, node: Node, pods: list[Pod], victims: list[Pod]) -> Any:
        values = (pod, node, pods, victims)[: len(offered)]
        try:
            return call(*values)
        except (ContractError, TimeoutError, ConnectionError):
            raise
        except (Exception, SystemExit) as failure:
            raise ContractError(
                f"{where}: {verb.value} of pod {pod.key!r} on node {node.name!r} raised "
                f"{type(failure).__name__}: {failure}{failure_location(failure)}"
            ) from failure

    return ask


def _names(body: ExtenderArgs) -> tuple[str, ...]:
    """The nodes that are offered, by name."""
    if body.node_names is not None:
        return body.node_names
    return tuple(
        str(node["metadata"]["name"]) if isinstance(node, dict) else node.name
        for node in body.nodes or ()
    )


def _same(url: object, prefix: str) -> bool:
    return str(url).rstrip("/") in (prefix.rstrip("/"), redact_password(prefix).rstrip("/"))
