"""A file that is cut anywhere is read to its last whole frame; a flipped byte is noticed."""

from __future__ import annotations

import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stowplan.recording import frames
from stowplan.recording.frames import (
    CALLS,
    HEADER,
    MAGIC,
    Frame,
    RecordingError,
    TornTail,
    encode_frame,
    read_frames,
)
from stowplan.recording.metadata_rows import MetadataRows
from stowplan.recording.recording_files import open_recording
from tests.recording.recorded import record_simulation
from tests.soak import examples

FIRST = 10_000
"""Bytes before which the header may not be whole."""
PAYLOADS = (b"header", b"", b"calls" * 30, bytes(40), b"\0" * 5 + b"x")


def a_file() -> tuple[bytes, list[int]]:
    """A file of five frames, and where they end."""
    data, ends = MAGIC, [len(MAGIC)]
    for number, payload in enumerate(PAYLOADS):
        data += encode_frame(HEADER if number == 0 else CALLS, payload)
        ends.append(len(data))
    return data, ends


def whole(data: bytes) -> list[bytes]:
    return [one.payload for one in read_frames(data, "f") if isinstance(one, Frame)]


def torn(data: bytes) -> TornTail | None:
    return next((one for one in read_frames(data, "f") if isinstance(one, TornTail)), None)


def test_cut_at_every_byte() -> None:
    data, ends = a_file()
    for at in range(len(data) + 1):
        n_whole = sum(end <= at for end in ends[1:])
        assert whole(data[:at]) == list(PAYLOADS[:n_whole])
        is_torn = at not in ends
        assert (torn(data[:at]) is not None) == is_torn, at


def test_cut_and_zeros_after_it() -> None:
    """As file systems leave it after a loss of power."""
    data, ends = a_file()
    for end in ends[1:]:
        padded = data[:end] + bytes(700)
        n_whole = ends.index(end)
        assert whole(padded) == list(PAYLOADS[:n_whole])
        assert torn(padded) == TornTail(end, 700)


def test_every_flipped_byte_is_noticed() -> None:
    data, _ = a_file()
    for at in range(len(data)):
        for bit in (0, 3, 7):
            flipped = bytearray(data)
            flipped[at] ^= 1 << bit
            with pytest.raises(RecordingError):
                list(read_frames(bytes(flipped), "f"))


def test_a_file_of_another_version_is_named() -> None:
    data, _ = a_file()
    with pytest.raises(RecordingError, match="f: format 1 of recordings: expected 2 or 3"):
        list(read_frames(data.replace(b"\x03\n", b"\x01\n", 1), "f"))


def test_a_file_of_format_2_is_read(recording: Path) -> None:
    """It has the metadata of pods one by one, and frames of calls have another name."""
    data = MAGIC.replace(b"\x03\n", b"\x02\n")
    for one in read_frames(recording.read_bytes(), "f"):
        assert isinstance(one, Frame)
        kind, payload = one.kind, one.payload
        if kind == CALLS:
            body = msgspec.msgpack.decode(zlib.decompress(payload))
            pods = body[2]
            *_, rows = pods
            parts = msgspec.convert(rows, list[MetadataRows])
            metas = [meta for part in parts for meta in part.metadata()]
            body[2] = [metas, *pods[1:-1]]
            kind, payload = b"C", zlib.compress(msgspec.msgpack.encode(body))
        data += encode_frame(kind, payload)
    former = recording.with_name("former.rec")
    former.write_bytes(data)
    read, found = open_recording(recording), open_recording(former)
    pairs = list(zip(found.calls(), read.calls(), strict=True))
    assert pairs
    for one, call in pairs:
        assert one.events() == call.events()
        assert one.effect_bytes() == call.effect_bytes()
    # A frame of the one format in a file of the other is damage.
    former.write_bytes(data.replace(b"\x02\n", b"\x03\n", 1))
    with pytest.raises(RecordingError, match="unknown kind of frame b'C'"):
        open_recording(former)


def test_control_a_head_without_checksum_loses_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong: a damaged length looks like a frame whose end is missing."""
    data, ends = a_file()
    monkeypatch.setattr(frames, "_CHECK", _NoCheck())
    flipped = bytearray(data)
    flipped[ends[1] + 4] ^= 128
    assert torn(bytes(flipped)) is not None


class _NoCheck:
    size = 4

    def unpack(self, check: bytes) -> tuple[int]:
        return (_Any(),)  # type: ignore[return-value]


class _Any(int):
    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("recording") / "run.rec"
    record_simulation(path)
    return path


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_cut_recording(recording: Path, data: st.DataObject) -> None:
    """As after kill -9: whole calls, from the first on."""
    content = recording.read_bytes()
    calls = list(open_recording(recording).calls())
    at = data.draw(st.integers(FIRST, len(content)))
    cut = recording.with_name("cut.rec")
    cut.write_bytes(content[:at])
    found = open_recording(cut)
    read = list(found.calls())
    assert read == calls[: len(read)]
    assert (len(read) == len(calls)) >= found.files[-1].is_closed
    assert bool(found.notes) == (found.files[-1].torn is not None)


@settings(max_examples=examples(40), deadline=None)
@given(st.data())
def test_flipped_recording(recording: Path, data: st.DataObject) -> None:
    content = bytearray(recording.read_bytes())
    at = data.draw(st.integers(0, len(content) - 1))
    content[at] ^= data.draw(st.integers(1, 255))
    flipped = recording.with_name("flipped.rec")
    flipped.write_bytes(content)
    with pytest.raises(RecordingError):
        open_recording(flipped)
