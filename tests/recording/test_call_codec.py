"""Frames of calls: what is read is what was written, for every mix of templates, nodes and runs."""

from __future__ import annotations

from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from stowplan.messages import events as happened
from stowplan.messages.effects import Bind, RecordEvent, Wake
from stowplan.objects.meta import ObjectMeta
from stowplan.objects.pod import Pod, PodStatus
from stowplan.objects.pod_templates import template_of, with_node_name
from stowplan.recording import call_codec
from stowplan.recording.call_codec import Call, decode_calls, encode_calls
from stowplan.recording.frames import RecordingError
from stowplan.recording.metadata_rows import rows_of
from stowplan.recording.pod_columns import columns_of
from stowplan.scheduler.outbox import BindRun
from stowplan.testing import builders

TEMPLATES = [builders.pod("t", cpu=f"{n}00m", labels={"app": f"a{n}"}) for n in range(1, 4)]
CREATED = datetime(2026, 1, 1, tzinfo=UTC)
KINDS: list[Any] = [happened.PodAdded, happened.PodUpdated, happened.PodDeleted]


def pod_of(rng: Random, name: str, n_templates: int, is_bound: float) -> Pod:
    """A pod of one of the templates; or, with a node of its own, of none."""
    template = TEMPLATES[rng.randrange(n_templates)]
    spec = template.spec
    if rng.random() < is_bound:
        spec = with_node_name(spec, f"n{rng.randrange(3)}")
    if rng.random() < is_bound / 3:
        spec = builders.pod("own", on="n9").spec
    status = rng.choice([template.status, PodStatus("Running")])
    return Pod(builders.pod(name, labels=template.labels).metadata, spec, status)


def call_of(rng: Random, at: int, n_templates: int, is_bound: float) -> Call:
    """A call whose bindings are, or are not, those of its own pods in their order."""
    pods = [pod_of(rng, f"p{at}-{i}", n_templates, is_bound) for i in range(rng.randrange(9))]
    kinds = KINDS if rng.random() < 0.5 else KINDS[:1]
    events: list[Any] = [rng.choice(kinds)(pod) for pod in pods]
    if rng.random() < 0.5:
        events.insert(rng.randrange(len(events) + 1), happened.BindDone(at, "u"))
    bound = pods if rng.random() < 0.7 else rng.sample(pods, len(pods))
    nodes = [f"n{i % 3}" for i in range(len(bound))]
    first = rng.randrange(2)
    effects: list[Any] = [RecordEvent(1, 1, "u", "ns", "n", "s", "Normal", "r", "a", "x")] * first
    effects += [
        Bind(10 + i, 2, pod.uid, pod.namespace, pod.name, node)
        for i, (pod, node) in enumerate(zip(bound, nodes, strict=True))
    ]
    effects += [Wake(99, 2, at + 5)] * rng.randrange(2)
    runs = [BindRun(first, bound, nodes)] if bound and rng.random() < 0.9 else []
    return Call(at, rng.choice([None, 7]), events, effects, runs)


def check(seed: int) -> None:
    rng = Random(seed)
    n_templates, is_bound = rng.randrange(1, 4), rng.choice([0.0, 0.0, 0.5, 1.0])
    calls = [call_of(rng, at, n_templates, is_bound) for at in range(rng.randrange(5))]
    found = decode_calls(encode_calls(calls))
    assert len(found) == len(calls)
    for one, call in zip(found, calls, strict=True):
        assert (one.now, one.heads_max) == (call.now, call.heads_max)
        assert one.events() == call.events
        assert one.effects() == call.effects
        assert one.has_effects(call.effects)


def test_what_is_written_is_read() -> None:
    for seed in range(300):
        check(seed)


def test_control_a_run_of_other_pods_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a run of bindings is taken to be of the next pods, whichever they are."""

    class EqualToAll(list[Any]):
        __hash__ = None  # type: ignore[assignment]

        def __getitem__(self, at: Any) -> Any:
            found = super().__getitem__(at)
            return EqualToAll(found) if isinstance(at, slice) else found

        def __ne__(self, other: object) -> bool:
            return False

    divide = call_codec._divide

    def wrong(events: list[Any]) -> Any:
        codes, pods, others = divide(events)
        return codes, EqualToAll(pods), others

    monkeypatch.setattr(call_codec, "_divide", wrong)
    with pytest.raises(AssertionError):
        test_what_is_written_is_read()


def test_pods_of_a_template_take_their_metadata_only() -> None:
    spec = TEMPLATES[0].spec
    pods = [
        Pod(builders.pod(f"p{i}").metadata, spec, TEMPLATES[0].status) for i in range(1000, 2000)
    ]
    calls = [Call(0, None, [happened.PodAdded(pod) for pod in pods], [])]
    assert len(encode_calls(calls)) < 2 * len(pods)
    read = [event.pod for event in decode_calls(encode_calls(calls))[0].events()]
    assert len({id(pod.spec) for pod in read}) == 1


def metadata_of(name: str, n: int) -> ObjectMeta:
    return ObjectMeta(name, "shop", f"{n * 7919:08x}", {"app": name[0]}, creation_timestamp=CREATED)


NAMES = {
    "of one length": [f"p-{n:05}" for n in range(2500)],
    "with more digits later": [f"p-{n}" for n in range(2500)],
    "of no common length": ["p" * (1 + n % 7) for n in range(300)],
    "all the same": ["p"] * 100,
    "few": [f"p-{n}" for n in range(9)],
    "none": [],
}


@pytest.mark.parametrize("names", NAMES.values(), ids=NAMES)
def test_metadata_are_read_as_written(names: list[str]) -> None:
    metadata = [metadata_of(name, n) for n, name in enumerate(names)]
    parts = rows_of(metadata)
    assert [one for part in parts for one in part.metadata()] == metadata
    same = [metadata_of("p", 0)] * len(names)
    assert [one for part in rows_of(same) for one in part.metadata()] == same


def test_metadata_of_a_template_take_what_differs() -> None:
    """Wrong where the bytes of one pod are compared with others than its neighbours'."""
    (part,) = rows_of([metadata_of(f"p-{n:05}", 0) for n in range(1000)])
    assert len(part.places) == 3
    assert len(part.values) == 3 * 1000


def test_damaged_rows_are_an_error() -> None:
    (part,) = rows_of([metadata_of(f"p-{n:05}", n) for n in range(100)])
    for field, value in (("n_rows", -1), ("n_rows", 10**12), ("n_rows", 99), ("places", [0])):
        with pytest.raises(RecordingError):
            replace(part, **{field: value}).metadata()
    with pytest.raises(RecordingError):
        replace(part, places=[-1, *part.places[1:]]).metadata()


def test_pods_on_nodes_share_their_template_again() -> None:
    spec = TEMPLATES[0].spec
    pods = [
        Pod(builders.pod(f"p{i}").metadata, with_node_name(spec, f"n{i}"), PodStatus())
        for i in range(5)
    ]
    read = columns_of(pods).pods()
    assert read == pods
    assert len({id(template_of(pod.spec)) for pod in read}) == 1
