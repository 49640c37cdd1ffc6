"""Every kind that plugins read is watched."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from stowplan.assembly.in_tree import IN_TREE
from stowplan.assembly.plugin_kinds import kinds_of
from stowplan.assembly.watched_kinds import SESSIONS_READ, kinds_read
from stowplan.client.resources import RESOURCES
from stowplan.conformance.evaluate import evaluate
from stowplan.driver.live.configuration_files import read_configuration_files
from stowplan.framework.object_store import ObjectStore
from stowplan.framework.runtime.declarations import declaration_of
from stowplan.objects.meta import Object
from stowplan.objects.scheduling_group import SchedulingGroup

DATA = Path(__file__).parent.parent / "conformance" / "data"
DEPTH = 25


NOT_LIVE = {SchedulingGroup}
"""Read behind gates that no live command has yet (docs/pod-groups.md)."""


def test_every_kind_that_rules_read_can_be_followed() -> None:
    served = {resource.kind for resource in RESOURCES} | NOT_LIVE
    for rule in IN_TREE.values():
        assert set(declaration_of(rule).reads or ()) <= served
    assert set(kinds_read(read_configuration_files()[0])) <= served


def test_every_in_tree_plugin_declares_what_it_reads() -> None:
    assert not [name for name, rule in IN_TREE.items() if declaration_of(rule).reads is None]


def test_a_profile_follows_what_its_rules_read_and_nothing_else(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        "apiVersion: kubescheduler.config.k8s.io/v1\n"
        "kind: KubeSchedulerConfiguration\n"
        "profiles:\n"
        "- schedulerName: plain\n"
        "  plugins: {multiPoint: {disabled: [{name: '*'}], enabled: [{name: PrioritySort},"
        " {name: NodeName}, {name: DefaultBinder}]}}\n"
    )
    assert kinds_read(read_configuration_files([str(file)])[0]) == ()
    file.write_text(file.read_text().replace("NodeName", "InterPodAffinity"))
    assert [kind.__name__ for kind in kinds_read(read_configuration_files([str(file)])[0])] == [
        "Namespace"
    ]


class Seen:
    """Which rule has asked a world for which kinds: the one nearest on the stack."""

    def __init__(self) -> None:
        self.kinds: dict[Any, set[type[Object]]] = {}

    def note(self, kind: type[Object]) -> None:
        frame: Any = sys._getframe(2)
        for _ in range(DEPTH):
            owner = frame.f_locals.get("self")
            if type(owner) in RULES:
                self.kinds.setdefault(owner, set()).add(kind)
                return
            frame = frame.f_back
            if frame is None:
                return


RULES = set(IN_TREE.values())


def lines(folder: str, step: int) -> Iterable[bytes]:
    for path in sorted((DATA / folder).glob("*.jsonl.gz")):
        with gzip.open(path) as file:
            yield from (line for i, line in enumerate(file) if i % step == 0)


@pytest.mark.slow
@pytest.mark.parametrize(("folder", "form"), [("attempts", "attempt"), ("legacy", "legacy")])
def test_plugins_read_only_watched_kinds(
    folder: str, form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While recorded questions are answered each rule asks for the kinds that are followed for it,
    and no others."""
    seen = Seen()
    for name in ("find", "all", "observed"):
        asked = getattr(ObjectStore, name)

        def noted(self: ObjectStore, kind: type[Object], *rest: Any, asked: Any = asked) -> Any:
            seen.note(kind)
            return asked(self, kind, *rest)

        monkeypatch.setattr(ObjectStore, name, noted)
    for _ in evaluate(lines(folder, 20), form=form):
        pass
    assert len(seen.kinds) >= 8
    unfollowed = {
        f"{rule.name} reads {kind.__name__}"
        for rule, kinds in seen.kinds.items()
        # Of groups rules want to know where sessions place some, and there they are followed.
        for kind in kinds - set(kinds_of(rule)) - set(SESSIONS_READ)
    }
    assert not unfollowed


def test_a_rule_that_reads_in_secret_is_caught() -> None:
    seen, rule = Seen(), IN_TREE["NodeName"]()

    def reads(self: Any) -> None:
        ObjectStore.find(ObjectStore(), RESOURCES[0].kind, "x")
        hidden(seen)

    reads(rule)
    assert seen.kinds[rule] - set(kinds_of(rule))


def hidden(seen: Seen) -> None:
    seen.note(RESOURCES[5].kind)
