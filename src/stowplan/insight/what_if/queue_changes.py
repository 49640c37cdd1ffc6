"""Changes of queues: of kube-batch, Volcano and KAI-Scheduler, in the words of their objects.

What a change makes of a queue is judged as a manifest is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from stowplan.apis.custom.custom_kinds import custom_causes
from stowplan.framework.problems import did_you_mean
from stowplan.insight.what_if.change_state import ChangeState
from stowplan.insight.what_if.requested_changes import RequestedChange
from stowplan.objects.encoding.tree import Tree
from stowplan.objects.kai.kai_kinds import KaiQueueObject
from stowplan.objects.meta import Object
from stowplan.objects.podgroup import Queue
from stowplan.objects.quantity import QuantityError, amount

Read = Callable[[str, str], Any]
"""(resource or "", text) -> the value in the object. Raises ValueError with what was expected."""


class QueueField(NamedTuple):
    """A field of a queue. form: as users write it. path: from `spec`, with RESOURCE for the name of
    a resource."""

    form: str
    path: tuple[str, ...]
    read: Read
    value: str

    @property
    def name(self) -> str:
        """Without the resource."""
        return self.form.partition(".")[0]


def _whole_number(_: str, text: str) -> int:
    if not re.fullmatch(r"\d{1,9}", text):
        raise ValueError("expected a whole number of at least 0")
    return int(text)


def _any_whole_number(_: str, text: str) -> int:
    if not re.fullmatch(r"-?\d{1,9}", text):
        raise ValueError("expected a whole number")
    return int(text)


def _number(_: str, text: str) -> float:
    try:
        found = float(text)
    except ValueError:
        raise ValueError("expected a number") from None
    return int(found) if found.is_integer() else found


def _quantity(resource: str, text: str) -> str:
    try:
        is_negative = amount(resource, text) < 0
    except QuantityError as problem:
        raise ValueError(str(problem)) from None
    if is_negative:
        raise ValueError("expected at least 0")
    return text


def _switch(_: str, text: str) -> bool:
    if text not in ("true", "false"):
        raise ValueError("expected true or false")
    return text == "true"


def _text(_: str, text: str) -> str:
    return text


RESOURCE = "RESOURCE"
_QUANTITIES = ("capability", "deserved", "guarantee")
_AMOUNTS = ("quota", "limit", "overQuotaWeight")
_RUNTIMES = ("preemptMinRuntime", "reclaimMinRuntime")
KAI_RESOURCES = ("cpu", "memory", "gpu")
FIELDS: Mapping[type[Object], tuple[QueueField, ...]] = {
    Queue: (
        QueueField("weight", ("weight",), _whole_number, "N"),
        *(
            QueueField(
                f"{name}.{RESOURCE}",
                (name, "resource", RESOURCE) if name == "guarantee" else (name, RESOURCE),
                _quantity,
                "QUANTITY",
            )
            for name in _QUANTITIES
        ),
        QueueField("parent", ("parent",), _text, "NAME"),
        QueueField("priority", ("priority",), _any_whole_number, "N"),
        QueueField("reclaimable", ("reclaimable",), _switch, "true or false"),
    ),
    KaiQueueObject: (
        *(
            QueueField(f"{name}.{RESOURCE}", ("resources", RESOURCE, name), _number, "N")
            for name in _AMOUNTS
        ),
        QueueField("priority", ("priority",), _any_whole_number, "N"),
        QueueField("parentQueue", ("parentQueue",), _text, "NAME"),
        *(QueueField(name, (name,), _text, "DURATION") for name in _RUNTIMES),
    ),
}
"""Kind of queue -> what may be changed."""
_PARENTS = ("parent", "parentQueue")
_KINDS: Mapping[type[Object], str] = {
    Queue: "kube-batch and Volcano",
    KaiQueueObject: "KAI-Scheduler",
}
_PLAIN, _BY_RESOURCE = (
    "|".join({one.name for own in FIELDS.values() for one in own if (RESOURCE in one.path) == of})
    for of in (False, True)
)
_FIELD = re.compile(
    rf"(?P<queue>.+?)\.(?P<field>(?P<plain>{_PLAIN})|(?P<name>{_BY_RESOURCE})\.(?P<resource>.+))"
)


def _forms(kind: type[Object]) -> str:
    return ", ".join(f"NAME.{one.form}={one.value}" for one in FIELDS[kind])


def change_queue(state: ChangeState, change: RequestedChange) -> str:
    """Set a field of a queue."""
    what, equals, text = change.text.rpartition("=")
    parts = _FIELD.fullmatch(what)
    if not equals or parts is None or not (text or parts["plain"] in _PARENTS):
        forms = (f"{_forms(kind)} ({of})" for kind, of in _KINDS.items())
        raise change.error(f"expected {', or '.join(forms)}")
    name, resource = parts["queue"], parts["resource"] or ""
    field_name = parts["plain"] or parts["name"]
    queue, field = _find(state, change, name, field_name)
    if isinstance(queue, KaiQueueObject) and resource and resource not in KAI_RESOURCES:
        known = ", ".join(KAI_RESOURCES)
        raise change.error(f'unknown resource "{resource}": expected one of {known}')
    if field_name in _PARENTS and text:
        _check_is_there(state, change, type(queue), text)
    try:
        given = field.read(resource, text)
    except ValueError as problem:
        what = "quantity" if field.value == "QUANTITY" else field_name
        raise change.error(f"invalid {what} {text!r}: {problem}") from None
    tree = _tree_of(queue)
    path = [resource if one == RESOURCE else one for one in field.path]
    _set(tree.setdefault("spec", {}), path, given)
    after = msgspec.convert(tree, type(queue), strict=False)
    state.replace_object(queue, msgspec.structs.replace(queue, spec=after.spec))
    return f"{parts['field']} of queue {name} set to {text or 'none'}"


def check_queues(state: ChangeState, changes: Sequence[RequestedChange]) -> None:
    """Raise InputError for queues that are invalid once all changes are made. Not after each: an
    amount may be bounded by another one that changes, too."""
    before = {(type(one), one.name): one for one in state.given.objects}
    for one in state.objects:
        if not isinstance(one, Queue | KaiQueueObject):
            continue
        old = before.get((type(one), one.name))
        if old is one or not isinstance(old, Queue | KaiQueueObject):
            continue
        # What was wrong before may be so still; as on a server, that was stored.
        known = {*custom_causes(_tree_of(old))}
        mine = [change for change in changes if change.text.startswith(f"{one.name}.")]
        for cause in custom_causes(_tree_of(one)):
            if cause not in known:
                raise mine[-1].error(f"{cause.field}: {cause.message}")


def _find(
    state: ChangeState, change: RequestedChange, name: str, field_name: str
) -> tuple[Queue | KaiQueueObject, QueueField]:
    """The queue of a name that has the field; a name may be that of queues of two kinds."""
    queues = [one for one in state.objects if isinstance(one, Queue | KaiQueueObject)]
    named = [one for one in queues if one.name == name]
    if not named:
        hint = did_you_mean(name, [one.name for one in queues])
        raise change.error(f'queues "{name}" not found' + (f" ({hint})" if hint else ""))
    for queue in named:
        for field in FIELDS[type(queue)]:
            if field.name == field_name:
                return queue, field
    kind = KaiQueueObject if isinstance(named[0], KaiQueueObject) else Queue
    raise change.error(
        f'queue "{name}" is of {_KINDS[kind]} and has no {field_name}: expected {_forms(kind)}'
    )


def _check_is_there(
    state: ChangeState, change: RequestedChange, kind: type[Object], name: str
) -> None:
    names = [one.name for one in state.objects if isinstance(one, kind)]
    # Volcano creates this one by itself.
    if name not in names and not (kind is Queue and name == "root"):
        hint = did_you_mean(name, names)
        raise change.error(f'queues "{name}" not found' + (f" ({hint})" if hint else ""))


def _tree_of(queue: Queue | KaiQueueObject) -> Tree:
    tree = msgspec.to_builtins(queue)
    return {"apiVersion": queue.api_version, "kind": "Queue", **tree}


def _set(spec: Tree, path: list[str], value: Any) -> None:
    *above, last = path
    for one in above:
        spec = spec.setdefault(one, {})
    spec[last] = value
