"""Cached encodings of objects are dropped with their objects, however a deletion is reported."""

from __future__ import annotations

import numpy as np
import pytest

from stowplan.client.informer import Informer
from stowplan.client.resources import resources_of
from stowplan.client.responses import ApiResponse
from stowplan.client.watch_decoding import RawObjectCache
from stowplan.objects.pod import Pod
from stowplan.objects.pod_templates import KEPT_MIN, PodTemplates

LIST = b'{"metadata":{"resourceVersion":"%d"},"items":[%b]}'


def full_tree(name: str, uid: str, version: int, rest: str = "") -> bytes:
    meta = f'"name":"{name}","namespace":"d","uid":"{uid}","resourceVersion":"{version}"'
    return f'{{"metadata":{{{meta}}},"spec":{{"hostIPC":true}}{rest}}}'.encode()


def follower(whole: RawObjectCache, templates: PodTemplates | None = None) -> Informer:
    """An informer that has been shown one pod, and watches."""
    (pods,) = resources_of((Pod,))
    made = Informer(pods, np.random.default_rng(0), templates, streams=False, whole=whole)
    made.next(0)
    made.answered(ApiResponse(200, LIST % (1, full_tree("a", "u1", 1))), 0)
    made.next(0)
    made.opened(0)
    return made


def line(kind: str, value: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), value)


def test_a_pod_keeps_its_encoding() -> None:
    whole = RawObjectCache()
    found = follower(whole).find("d/a")
    assert found is not None
    assert whole.full_tree(found)["spec"] == {"hostIPC": True}


@pytest.mark.parametrize("rest", ["", ',"status":null'], ids=["plainly", "with a null"])
def test_a_pod_that_is_deleted_is_kept_no_longer(rest: str) -> None:
    whole = RawObjectCache()
    informer = follower(whole)
    assert len(whole) == 1
    informer.feed(line("DELETED", full_tree("a", "u1", 2, rest)), 0)
    assert len(whole) == len(informer) == 0


def test_a_recreated_pod_replaces_its_predecessor() -> None:
    """A list that starts over tells of a pod of another uid under the name."""
    whole = RawObjectCache()
    informer = follower(whole)
    before = informer.find("d/a")
    informer.feed(b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n', 0)
    informer.next(10**12)
    informer.answered(ApiResponse(200, LIST % (9, full_tree("a", "u2", 9))), 10**12)
    now = informer.find("d/a")
    assert before is not None
    assert now is not None
    assert len(whole) == 1
    assert "hostIPC" in str(whole.full_tree(now))
    assert "hostIPC" not in str(whole.full_tree(before))


def test_templates_of_deleted_pods_are_dropped() -> None:
    templates = PodTemplates()
    informer = follower(RawObjectCache(), templates)
    for number in range(3 * KEPT_MIN):
        name = f"p{number}"
        value = full_tree(name, name, number + 2).replace(b'"hostIPC":true', b'"nodeName":""')
        value = value.replace(b'"namespace"', b'"labels":{"job":"%b"},"namespace"' % name.encode())
        informer.feed(line("ADDED", value), 0)
        informer.feed(line("DELETED", value), 0)
    assert len(informer) == 1
    assert len(templates) == KEPT_MIN
