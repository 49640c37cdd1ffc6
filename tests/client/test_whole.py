"""What is kept of objects as the server spells them goes when they go, however that is told."""

from __future__ import annotations

import numpy as np
import pytest

from stowplan.client.answers import Answer
from stowplan.client.decoding import Whole
from stowplan.client.informer import Informer
from stowplan.client.resources import resources_of
from stowplan.objects.pod import Pod
from stowplan.objects.templates import KEPT_MIN, Templates

LIST = b'{"metadata":{"resourceVersion":"%d"},"items":[%b]}'


def spelt(name: str, uid: str, version: int, rest: str = "") -> bytes:
    meta = f'"name":"{name}","namespace":"d","uid":"{uid}","resourceVersion":"{version}"'
    return f'{{"metadata":{{{meta}}},"spec":{{"hostIPC":true}}{rest}}}'.encode()


def follower(whole: Whole, templates: Templates | None = None) -> Informer:
    """An informer that has been shown one pod, and watches."""
    (pods,) = resources_of((Pod,))
    made = Informer(pods, np.random.default_rng(0), templates, streams=False, whole=whole)
    made.next(0)
    made.answered(Answer(200, LIST % (1, spelt("a", "u1", 1))), 0)
    made.next(0)
    made.opened(0)
    return made


def line(kind: str, value: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (kind.encode(), value)


def test_a_pod_is_shown_as_it_is_spelt() -> None:
    whole = Whole()
    found = follower(whole).find("d/a")
    assert found is not None
    assert whole.spelt(found)["spec"] == {"hostIPC": True}


@pytest.mark.parametrize("rest", ["", ',"status":null'], ids=["plainly", "with a null"])
def test_a_pod_that_is_deleted_is_kept_no_longer(rest: str) -> None:
    whole = Whole()
    informer = follower(whole)
    assert len(whole) == 1
    informer.fed(line("DELETED", spelt("a", "u1", 2, rest)), 0)
    assert len(whole) == len(informer) == 0


def test_who_takes_the_place_of_another_takes_it_here_too() -> None:
    """A list that starts over tells of a pod of another uid under the name."""
    whole = Whole()
    informer = follower(whole)
    before = informer.find("d/a")
    informer.fed(b'{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}\n', 0)
    informer.next(10**12)
    informer.answered(Answer(200, LIST % (9, spelt("a", "u2", 9))), 10**12)
    now = informer.find("d/a")
    assert before is not None
    assert now is not None
    assert len(whole) == 1
    assert "hostIPC" in str(whole.spelt(now))
    assert "hostIPC" not in str(whole.spelt(before))


def test_templates_of_pods_that_have_gone_are_forgotten() -> None:
    templates = Templates()
    informer = follower(Whole(), templates)
    for number in range(3 * KEPT_MIN):
        name = f"p{number}"
        value = spelt(name, name, number + 2).replace(b'"hostIPC":true', b'"nodeName":""')
        value = value.replace(b'"namespace"', b'"labels":{"job":"%b"},"namespace"' % name.encode())
        informer.fed(line("ADDED", value), 0)
        informer.fed(line("DELETED", value), 0)
    assert len(informer) == 1
    assert len(templates) == KEPT_MIN
