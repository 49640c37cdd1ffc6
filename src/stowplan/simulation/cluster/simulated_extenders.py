"""Simulated extenders: Python classes answer in place of extenders; without one, all is accepted.

A class has methods named after the verbs, each called for one node at a time:

    class Cards:
        url = "http://cards:9998"      # the extender that it replaces; default: any without a class
        simulated_s = 0.02             # latency of each call, in seconds

        def filter(self, pod, node): ...             # True, False, or a reason for rejection
        def prioritize(self, pod, node): ...         # a score, 0 to 10
        def preempt(self, pod, node, victims): ...   # True, False, or the victims
        def bind(self, pod, node): ...               # None, or an error text

Parameters are passed by name; `pods` has the pods on the node. A missing method, and an extender
without a class, accept everything. Raise TimeoutError for an extender that does not reply and
ConnectionError for one that cannot be reached; any other exception fails the call as a server error
would, and is a warning of the simulation.

Answers pass through the extender protocol as encoded bodies. Nodes are returned by name only, since
the scheduler reads nothing else.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from stowplan.assembly.python_files import run_file
from stowplan.framework import ContractError
from stowplan.framework.plugin_calls import failure_location, narrow_parameters, parameters_of
from stowplan.framework.problems import did_you_mean
from stowplan.inputs.input_error import InputError
from stowplan.messages.effects import CallExtender
from stowplan.messages.extender_api import (
    BOUND_BODY,
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
from stowplan.simulation.cluster.cluster_api import CREATED, ClusterApi
from stowplan.simulation.cluster.effect_dispatcher import SimulatedReply
from stowplan.simulation.cluster.scheduler_instance import SchedulerInstance
from stowplan.simulation.cluster.simulated_cluster import SimulatedCluster
from stowplan.simulation.event_queue import EventQueue

NOTE = "extender {} is not simulated and accepts every node (see --extender)"
ExtenderSource = type[Any] | str | Path
"""A class that answers in place of an extender, or a file that defines one."""

METHOD_PARAMETERS = {
    ExtenderVerb.FILTER: ("pod", "node", "pods"),
    ExtenderVerb.PRIORITIZE: ("pod", "node", "pods"),
    ExtenderVerb.PREEMPT: ("pod", "node", "pods", "victims"),
    ExtenderVerb.BIND: ("pod", "node", "pods"),
}
_VERBS = {verb.value: verb for verb in ExtenderVerb}
_WANTED = {
    ExtenderVerb.FILTER: "True, False, or a reason for rejection",
    ExtenderVerb.PRIORITIZE: "a whole number",
    ExtenderVerb.PREEMPT: "True, False, or a list of victims",
    ExtenderVerb.BIND: "None, or an error text",
}


class ExtenderStandIn(msgspec.Struct):
    """Stand-in for one extender. name: of its class, "" for none. takes_s: latency in seconds.
    n_calls: calls by verb. n_failed: calls without a reply in time."""

    extender: HTTPExtender
    name: str = ""
    takes_s: float = 0.0
    methods: Mapping[ExtenderVerb, Callable[..., Any]] = {}
    n_calls: Counter[str] = msgspec.field(default_factory=Counter)
    n_failed: int = 0

    @property
    def url(self) -> str:
        """Its URL without the password."""
        return redact_password(self.extender.url_prefix)


class SimulatedExtenders:
    """The simulated extenders of a configuration."""

    def __init__(
        self,
        cluster: ClusterApi,
        extenders: Sequence[HTTPExtender],
        classes: Sequence[type[Any]] = (),
    ) -> None:
        """Raises ContractError and InputError for classes that match no extender."""
        self._cluster = cluster
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
            got = "no extender without a class" if url is None else repr(url)
            hint = did_you_mean(str(url), known)
            wanted = f"an extender of the configuration: {', '.join(known) or '(it has none)'}"
            raise InputError(where, "", got, wanted + (f" ({hint})" if hint else ""))
        for verb in methods:
            if not any(verb in self.stand_ins[place].extender.verbs for place in places):
                urls = ", ".join(self.stand_ins[place].url for place in places)
                raise ContractError(
                    f"{where}: {verb.value} is never called: the configuration has no"
                    f" {verb.value}Verb for {urls}"
                )
        for place in places:
            if place in taken:
                both = f"{taken[place].__name__} and {kind.__name__}"
                raise InputError(where, "", f"two classes for {url!r}: {both}", "one class")
            taken[place] = kind
            stand_in = self.stand_ins[place]
            stand_in.name, stand_in.takes_s = kind.__name__, _seconds(kind, where)
            stand_in.methods = _bound(kind, methods, where)

    @property
    def unanswered_urls(self) -> list[str]:
        """URLs of extenders without a class."""
        return [stand_in.url for stand_in in self.stand_ins.values() if not stand_in.name]

    def figures(self) -> list[dict[str, Any]]:
        """Calls per extender, for the summary."""
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
        """The reply to a call, with its latency."""
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
                # With an ignorable extender nothing else reports the error.
                self.warnings.append(text)
            return SimulatedReply(lambda: ExtenderResponse(reason=text), takes)
        stand_in.n_failed += takes > effect.timeout_s * SECOND
        if isinstance(question.body, ExtenderBindingArgs) and reply.body == BOUND_BODY:
            body = question.body
            return SimulatedReply(lambda: self._bound(body), takes)
        return SimulatedReply(lambda: reply, takes)

    def _bound(self, body: ExtenderBindingArgs) -> ExtenderResponse:
        """Bind the pod, as an extender does before it replies."""
        key = f"{body.pod_namespace}/{body.pod_name}"
        code = self._cluster.bind(key, body.pod_uid, body.node)
        if code == CREATED:
            return ExtenderResponse(OK_CODE, BOUND_BODY)
        return ExtenderResponse(
            OK_CODE, msgspec.json.encode({"Error": f"binding failed with status {code}"})
        )

    def _reply(self, stand_in: ExtenderStandIn, question: ExtenderRequest) -> ExtenderResponse:
        body, ask = question.body, stand_in.methods.get(question.verb)
        asking = _SimulatedCall(self._cluster, stand_in, question.verb, ask)
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
    """One extender call. ask: the method of the class; None accepts everything."""

    def __init__(
        self,
        cluster: ClusterApi,
        stand_in: ExtenderStandIn,
        verb: ExtenderVerb,
        ask: Callable[..., Any] | None,
    ) -> None:
        self._cluster = cluster
        self._name = stand_in.name
        self._verb = verb
        self._ask = ask
        self._pods: dict[str, list[Pod]] | None = None

    def filter(self, body: ExtenderArgs) -> dict[str, Any]:
        """Response to Filter: nodes that pass, and reasons for the others."""
        kept: list[str] = []
        reasons: dict[str, str] = {}
        for name in _names(body):
            answer = True if self._ask is None else self._asked(body.pod, name)
            if answer is True:
                kept.append(name)
            elif isinstance(answer, str):
                reasons[name] = answer
            elif answer is not False:
                raise self._wrong(body.pod, name, answer)
        tree: dict[str, Any] = {"FailedNodes": reasons}
        if body.node_names is not None:
            return tree | {"NodeNames": kept}
        return tree | {"Nodes": {"items": [{"metadata": {"name": name}} for name in kept]}}

    def prioritize(self, body: ExtenderArgs) -> list[dict[str, Any]]:
        """Response to Prioritize: a score per node."""
        found = []
        for name in _names(body):
            score = 0 if self._ask is None else self._asked(body.pod, name)
            if isinstance(score, bool) or not isinstance(score, int):
                raise self._wrong(body.pod, name, score)
            found.append({"Host": name, "Score": score})
        return found

    def preempt(self, body: ExtenderPreemptionArgs) -> dict[str, Any]:
        """Response to ProcessPreemption: candidate nodes with their victims."""
        found = {}
        for name, victims in body.victims.items():
            answer: Any = True
            if self._ask is not None:
                answer = self._asked(body.pod, name, victims.pods)
            pods = victims.pods if answer is True else answer
            if answer is False:
                continue
            if not isinstance(pods, list | tuple) or not all(isinstance(p, Pod) for p in pods):
                raise self._wrong(body.pod, name, answer)
            uids = [{"UID": pod.metadata.uid} for pod in pods]
            found[name] = {"Pods": uids, "NumPDBViolations": victims.num_pdb_violations}
        return {"NodeNameToMetaVictims": found}

    def bind(self, body: ExtenderBindingArgs) -> dict[str, Any]:
        """Response to Bind."""
        pod = self._cluster.pods.get(f"{body.pod_namespace}/{body.pod_name}")
        if pod is None or pod.uid != body.pod_uid:
            name = f"{body.pod_namespace}/{body.pod_name}"
            return {"Error": f"pod {name} with uid {body.pod_uid} not found"}
        error = None if self._ask is None else self._asked(pod, body.node)
        if error is not None and not isinstance(error, str):
            raise self._wrong(pod, body.node, error)
        return {} if error is None else {"Error": error or "refused"}

    def _asked(self, pod: Pod, name: str, victims: tuple[Pod, ...] = ()) -> Any:
        assert self._ask is not None
        node = self._cluster.nodes.get(name)
        if node is None:
            return False if self._verb is not ExtenderVerb.PRIORITIZE else 0
        return self._ask(pod, node, self._pods_on(name), list(victims))

    def _pods_on(self, name: str) -> list[Pod]:
        if self._pods is None:
            self._pods = {}
            for pod in self._cluster.pods.values():
                if pod.node_name:
                    self._pods.setdefault(pod.node_name, []).append(pod)
        return list(self._pods.get(name, ()))

    def _wrong(self, pod: Pod, node: str, answer: object) -> ContractError:
        call = f"{self._verb.value}() for pod {pod.key!r} on node {node!r}"
        expected = _WANTED[self._verb]
        return ContractError(
            f"extender {self._name}: {call} returned {answer!r}: expected {expected}"
        )


class SimulatedExtenderFactory:
    """Builds the simulated extenders of one or more runs. sources: as the user named them. notes:
    one per extender without a class.
    """

    def __init__(
        self, extenders: Sequence[HTTPExtender], sources: Iterable[ExtenderSource] | ExtenderSource
    ) -> None:
        """Raises ContractError and InputError for classes that would never be called."""
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
        """The simulated extenders of a scheduler instance, installed in its dispatcher."""
        found = SimulatedExtenders(instance.cluster, self._extenders, self._classes)
        instance.dispatcher.extender = found.answer
        return found


def extender_classes(sources: Iterable[ExtenderSource]) -> list[type[Any]]:
    """The classes of sources, in their order; raises ContractError."""
    found: list[type[Any]] = []
    for source in sources:
        if isinstance(source, str | Path):
            found += _classes_of_file(str(source))
        elif isinstance(source, type):
            found.append(source)
        else:
            raise ContractError(f"extenders: Invalid value: {source!r}: expected a class or a file")
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
        raise ContractError(f"{path}: no extender found: expected a class with one of {verbs}")
    yield from speaking


def _methods_of(kind: type[Any]) -> list[ExtenderVerb]:
    """The verbs that a class implements; raises ContractError for misspelt ones."""
    where = f"extender {kind.__name__}"
    verbs = ", ".join(_VERBS)
    for name, value in vars(kind).items():
        hint = did_you_mean(name, _VERBS) if callable(value) and not name.startswith("_") else ""
        if hint and name not in _VERBS:
            raise ContractError(
                f"{where}: {name} is never called: the methods of an extender are {verbs} ({hint})"
            )
    found = [verb for name, verb in _VERBS.items() if callable(getattr(kind, name, None))]
    if not found:
        raise ContractError(f"{where}: no methods: expected at least one of {verbs}")
    return found


def _seconds(kind: type[Any], where: str) -> float:
    takes = getattr(kind, "simulated_s", 0.0)
    is_number = isinstance(takes, int | float) and not isinstance(takes, bool)
    if not is_number or not 0 <= takes < float("inf"):
        raise ContractError(
            f"{where}: simulated_s: Invalid value: {takes!r}: expected seconds >= 0"
        )
    return float(takes)


def _bound(
    kind: type[Any], verbs: Iterable[ExtenderVerb], where: str
) -> dict[ExtenderVerb, Callable[..., Any]]:
    """Methods of an instance, as functions of all parameters on offer; raises ContractError."""
    if parameters_of(kind):
        names = ", ".join(parameters_of(kind))
        raise ContractError(f"{where}: the constructor must not have parameters: {names}")
    try:
        made = kind()
    # Out-of-tree code may raise anything; the message names its class.
    except Exception as failure:
        text = f"{type(failure).__name__}: {failure}{failure_location(failure)}"
        raise ContractError(f"{where}: the constructor raised {text}") from failure
    return {verb: _fitted(getattr(made, verb.value), verb, where) for verb in verbs}


def _fitted(method: Callable[..., Any], verb: ExtenderVerb, where: str) -> Callable[..., Any]:
    offered = METHOD_PARAMETERS[verb]
    wanted = tuple(parameters_of(method))
    for name in wanted:
        if name not in offered:
            hint = did_you_mean(name, offered)
            more = f" ({hint})" if hint else ""
            raise ContractError(
                f"{where}: {verb.value}(): unknown parameter {name!r}: expected"
                f" {', '.join(offered)}{more}"
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
    """Names of the candidate nodes."""
    if body.node_names is not None:
        return body.node_names
    return tuple(
        str(node["metadata"]["name"]) if isinstance(node, dict) else node.name
        for node in body.nodes or ()
    )


def _same(url: object, prefix: str) -> bool:
    return str(url).rstrip("/") in (prefix.rstrip("/"), redact_password(prefix).rstrip("/"))
