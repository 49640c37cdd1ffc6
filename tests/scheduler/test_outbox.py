"""Effects are numbered, and notes are within the API's limit."""

import pytest

from stowplan.messages.effects import Bind, PatchStatus, ReadPod, RecordEvent, Wake
from stowplan.scheduler.outbox import NOTE_BYTES_MAX, Outbox, truncate_note
from stowplan.testing import pod

WEB = pod("web", namespace="shop")


def test_effects_are_numbered_across_calls() -> None:
    outbox = Outbox()
    assert outbox.bind(WEB, WEB.uid, "n1") == 1
    assert outbox.take() == [Bind(1, 1, "shop/web", "shop", "web", "n1")]
    outbox.term = 3
    outbox.wake(5)
    assert outbox.read(WEB) == 3
    assert outbox.take() == [Wake(2, 3, 5), ReadPod(3, 3, "shop/web", "shop", "web")]
    assert outbox.take() == []


def test_without_leadership_nothing_is_reported() -> None:
    outbox = Outbox(leads=False)
    outbox.record(WEB, "Normal", "Scheduled", "Binding", "")
    outbox.patch_status(WEB, "n1")
    assert outbox.take() == []
    outbox.leads = True
    outbox.record(WEB, "Normal", "Scheduled", "Binding", "to n1")
    outbox.patch_status(WEB, None, "Unschedulable", "no room")
    recorded, patched = outbox.take()
    who = ("shop/web", "shop", "web")
    of = "default-scheduler"
    assert recorded == RecordEvent(1, 1, *who, of, "Normal", "Scheduled", "Binding", "to n1")
    assert patched == PatchStatus(2, 1, *who, "Unschedulable", "no room", None)


@pytest.mark.parametrize("letter", ["x", "é", "語", "\N{SHIP}"])
@pytest.mark.parametrize("size", [0, 255, 256, 341, 342, 511, 512, 513, 1023, 1024, 1025, 5000])
def test_a_note_is_truncated_at_1024_bytes_between_characters(letter: str, size: int) -> None:
    note = letter * size
    cut = truncate_note(note)
    assert len(cut.encode()) <= NOTE_BYTES_MAX
    if len(note.encode()) <= NOTE_BYTES_MAX:
        assert cut == note
    else:
        assert cut.endswith(" ...")
        assert note.startswith(cut.removesuffix(" ..."))
        assert len(cut.encode()) > NOTE_BYTES_MAX - len(letter.encode())
