"""What an event means for a pod, by the plugins that refused it."""

from __future__ import annotations

import pytest

from stowplan.framework import OK, FeatureGates, Framework, PluginUse, Profile, Registry, Status
from stowplan.framework.clusterevents import (
    ANYTHING,
    FORCE_ACTIVATE,
    NODE,
    POD,
    RESOURCE_SLICE,
    Action,
    ClusterEvent,
    ClusterEventWithHint,
    QueueingHint,
    on,
)
from stowplan.objects.pod import DEFAULT_SCHEDULER, Pod
from stowplan.plugins.default_binder import DefaultBinder
from stowplan.plugins.priority_sort import PrioritySort
from stowplan.queue import PodRecord, QueueingStrategy
from stowplan.queue.queueing_hints import QueueingHintMap
from stowplan.testing.builders import pod
from tests.queue.fakes import NODE_ADD, NODE_DELETE, NODE_LABEL, REGISTERED

HINTS = QueueingHintMap({DEFAULT_SCHEDULER: REGISTERED})
TAINT = ClusterEvent(NODE, Action.UPDATE_NODE_TAINT)


def entry(*refused_by: str, pending: str = "", scheduler: str = DEFAULT_SCHEDULER) -> PodRecord:
    made = PodRecord.of(pod("a", uid="a-uid", scheduler=scheduler), 0)
    made.refused_by = frozenset(refused_by)
    made.pending_on = frozenset({pending} - {""})
    return made


@pytest.mark.parametrize(
    ("refused", "event", "helped", "queueing_strategy"),
    [
        (entry("Picky"), NODE_ADD, (), QueueingStrategy.SKIP),
        (entry("Picky"), NODE_ADD, ("a",), QueueingStrategy.AFTER_BACKOFF),
        (entry("Easy"), NODE_ADD, (), QueueingStrategy.AFTER_BACKOFF),
        (entry("Picky", "Easy"), NODE_ADD, (), QueueingStrategy.AFTER_BACKOFF),
        (entry("Picky", "Easy"), NODE_DELETE, ("a",), QueueingStrategy.SKIP),
        (entry("Stranger"), NODE_ADD, ("a",), QueueingStrategy.SKIP),
        (entry(pending="Picky"), NODE_ADD, ("a",), QueueingStrategy.IMMEDIATELY),
        (entry(pending="Picky"), NODE_ADD, (), QueueingStrategy.SKIP),
        (entry("Easy", pending="Picky"), NODE_ADD, (), QueueingStrategy.AFTER_BACKOFF),
        (entry("Easy", pending="Picky"), NODE_ADD, ("a",), QueueingStrategy.IMMEDIATELY),
        # Registered for Node/Add only: the taint rule is added, and always says yes.
        (entry("Easy"), TAINT, (), QueueingStrategy.AFTER_BACKOFF),
        (entry("Picky"), TAINT, (), QueueingStrategy.SKIP),
        (entry("Gate"), TAINT, (), QueueingStrategy.SKIP),
        # No plugin refused it: an error, so it is simply tried again.
        (entry(), NODE_DELETE, (), QueueingStrategy.AFTER_BACKOFF),
        (entry("Picky", scheduler="unknown"), NODE_DELETE, (), QueueingStrategy.AFTER_BACKOFF),
    ],
)
def test_queueing_strategy(
    refused: PodRecord, event: ClusterEvent, helped: object, queueing_strategy: QueueingStrategy
) -> None:
    assert HINTS.queueing_strategy(refused, event, None, helped) is queueing_strategy


def test_a_wildcard_means_every_pod_or_the_one_that_it_brings() -> None:
    refused = entry("Stranger", pending="Picky")
    assert HINTS.queueing_strategy(refused, ANYTHING, None, None) is QueueingStrategy.AFTER_BACKOFF
    assert (
        HINTS.queueing_strategy(refused, FORCE_ACTIVATE, None, refused.pod)
        is QueueingStrategy.AFTER_BACKOFF
    )
    assert HINTS.queueing_strategy(refused, FORCE_ACTIVATE, None, pod("b")) is QueueingStrategy.SKIP


def test_who_listens() -> None:
    assert HINTS.listeners(NODE_ADD) == ("Picky", "Easy")
    assert HINTS.listeners(NODE_LABEL) == ("Gate",)
    assert not HINTS.concern(NODE_DELETE)
    assert HINTS.concern(ANYTHING)
    assert HINTS.opens("Gate", NODE_LABEL)
    assert not HINTS.opens("Gate", ANYTHING)


def test_answers_name_every_plugin_that_has_a_say() -> None:
    refused = entry("Picky", "Easy", "Gate")
    answers = HINTS.answers(refused, NODE_ADD, None, ())
    assert answers == {"Picky": QueueingHint.SKIP, "Easy": QueueingHint.QUEUE}
    assert HINTS.answers(refused, ANYTHING, None, ()) == {}


def test_the_taint_rule_is_not_added_where_taints_are_asked_for() -> None:
    assert HINTS.answers(entry("Picky"), TAINT, None, ()) == {"Picky": QueueingHint.SKIP}


def test_always_leaves_the_hints_out() -> None:
    assert (
        HINTS.always().queueing_strategy(entry("Picky"), NODE_ADD, None, ())
        is QueueingStrategy.AFTER_BACKOFF
    )
    assert (
        HINTS.always().queueing_strategy(entry("Picky"), NODE_DELETE, None, ())
        is QueueingStrategy.SKIP
    )


class Silent:
    name = "Silent"

    def filter(self) -> Status:
        return OK


class Deaf:
    name = "Deaf"

    def filter(self) -> Status:
        return OK

    def events_to_register(self) -> tuple[ClusterEventWithHint, ...]:
        return ()


class Scorer:
    name = "Scorer"

    def score(self) -> int:
        return 0

    def events_to_register(self) -> tuple[ClusterEventWithHint, ...]:
        return (on(NODE, Action.ALL),)


def test_what_the_plugins_of_a_profile_register() -> None:
    plugins = (PrioritySort, DefaultBinder, Silent, Deaf, Scorer)
    points = {
        "queueSort": (PluginUse("PrioritySort"),),
        "bind": (PluginUse("DefaultBinder"),),
        "filter": (PluginUse("Silent"), PluginUse("Deaf")),
        "score": (PluginUse("Scorer"),),
    }
    profile = Profile("mine", points)
    hints = QueueingHintMap.of({"mine": Framework(profile, Registry(plugins), FeatureGates())})
    # Who can refuse and says nothing hears everything; who cannot refuse has no say.
    assert hints.listeners(NODE_DELETE) == ("Silent",)
    assert hints.listeners(ClusterEvent(POD, Action.UPDATE_POD_LABEL)) == ("Silent",)
    assert not hints.concern(ClusterEvent(RESOURCE_SLICE, Action.ADD))


def test_a_hint_sees_the_pod_and_both_objects() -> None:
    seen: list[object] = []

    def hint(of: Pod, old: object, new: object) -> QueueingHint:
        seen.extend((of.name, old, new))
        return QueueingHint.SKIP

    hints = QueueingHintMap({DEFAULT_SCHEDULER: {"Picky": (on(NODE, Action.DELETE, hint),)}})
    hints.queueing_strategy(entry("Picky"), NODE_DELETE, "before", "after")
    assert seen == ["a", "before", "after"]
