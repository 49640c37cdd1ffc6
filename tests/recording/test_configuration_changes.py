"""A recording of a scheduler whose configuration changes while it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from stowplan.assembly.deciders import ConfigText, Deciders, deciders_of
from stowplan.driver.storage import recording_writer
from stowplan.driver.storage.recording_writer import RecordingOptions, RecordingWriter
from stowplan.forecast.recorded_history import verify
from stowplan.messages import effects as to_do
from stowplan.messages import events as happened
from stowplan.messages.events import Event
from stowplan.objects.pod import Pod
from stowplan.recording.recording_files import open_recording
from stowplan.recording.recording_header import recorded_deciders
from stowplan.scheduler import Scheduler
from stowplan.testing import pod
from tests.recording.recorded import write_each_batch
from tests.scheduler.test_profile_swap import FILE, FIT, NODES, change, text

MOST = "MostAllocated"


class Recorded:
    """A scheduler that is recorded; its binds succeed."""

    def __init__(self, path: Path) -> None:
        self.writer = RecordingWriter(RecordingOptions(path, 64, 50, waits=True))
        self.deciders = deciders_of([ConfigText(text(), FILE)])
        self.scheduler: Scheduler = self.deciders.scheduler()
        self.writer.attach_server(self.deciders, self.scheduler, None, "auto")
        self.now = recording_writer.monotonic_ns()
        self.nodes: dict[str, str] = {}
        self.handle(happened.LeaderElected(1), *(happened.NodeAdded(one) for one in NODES))

    def handle(self, *events: Event) -> None:
        self.now += 10**9
        effects = self.scheduler.handle(events, self.now)
        answers: list[Event] = []
        for effect in effects:
            if isinstance(effect, to_do.Bind):
                self.nodes[effect.name] = effect.node
                answers.append(happened.BindDone(effect.effect, effect.uid))
        if answers:
            self.handle(*answers)

    def place(self, *pods: Pod) -> None:
        self.handle(*map(happened.PodAdded, pods))

    def use(self, deciders: Deciders, content: str) -> None:
        self.handle(change(content))
        self.writer.configuration_changed(deciders)


def recorded_with_a_change(path: Path) -> Recorded:
    recorded = Recorded(path)
    recorded.place(*(pod(f"a{i}", cpu="1") for i in range(3)))
    recorded.use(deciders_of([ConfigText(text(MOST), FILE)]), text(MOST))
    for i in range(6):
        recorded.place(pod(f"b{i}", cpu="1"))
    recorded.writer.close()
    assert recorded.nodes["b1"] == recorded.nodes["b0"]
    return recorded


def test_what_follows_a_change_is_decided_again(tmp_path: Path) -> None:
    path = tmp_path / "run.rec"
    recorded_with_a_change(path)
    found = verify(open_recording(path))
    assert found.is_exact
    assert found.is_equal
    assert found.n_calls > 8


def test_a_later_file_has_the_changed_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_each_batch(monkeypatch, 1)
    path = tmp_path / "run.rec"
    recorded_with_a_change(path)
    parts = sorted(tmp_path.glob("run.rec*"))
    assert len(parts) > 1
    (last,) = open_recording(path).files[-1:]
    configuration = recorded_deciders(last.header, "run.rec").configuration
    (profile,) = configuration.profiles.values()
    assert MOST in repr(profile.args[FIT])
    # Alone, without the files before it.
    for part in parts:
        if part != path:
            part.unlink()
    assert verify(open_recording(path)).is_equal
