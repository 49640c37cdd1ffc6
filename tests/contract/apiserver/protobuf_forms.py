"""JSON beside the same as protobuf: both directions are exact, byte for byte."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from stowplan.apis.protobuf.object_codec import object_codec, watch_frame
from stowplan.apis.protobuf.wire_format import WireError, read_fields

Tree = dict[str, Any]


def form_differences(line: Tree) -> Iterator[str]:
    """Differences of a line of `codec`, `server` or `watch`."""
    if "frames" in line:
        yield from _stream_differences(line)
    else:
        yield from _object_differences(line["json"], base64.b64decode(line["base64"]))


def _object_differences(tree: Tree, body: bytes) -> Iterator[str]:
    try:
        if object_codec().encode(tree) != body:
            yield "encoded: other bytes"
        got = object_codec().decode(body)
    except WireError as error:
        yield f"protobuf: {error}"
        return
    if got != tree:
        yield f"decoded: wanted {str(tree)[:200]}, got {str(got)[:200]}"


def _stream_differences(line: Tree) -> Iterator[str]:
    stream = base64.b64decode(line["stream_base64"])
    *frames, rest = frames_of(stream)
    if rest or [event_of(frame) for frame in frames] != line["events"]:
        yield "decoded: other events"
    written = b"".join(
        watch_frame(event["type"], object_codec().encode(event["object"]))
        for event in line["events"]
    )
    if written != stream:
        yield "encoded: other bytes"


def frames_of(stream: bytes) -> list[bytes]:
    """The frames of a stream, without their lengths, and what is left."""
    frames = []
    while len(stream) >= 4 and len(stream) >= 4 + int.from_bytes(stream[:4], "big"):
        end = 4 + int.from_bytes(stream[:4], "big")
        frames.append(stream[4:end])
        stream = stream[end:]
    return [*frames, stream]


def event_of(frame: bytes) -> Tree:
    """An event, as JSON has it."""
    parts = dict(read_fields(frame))
    raw = dict(read_fields(parts[2]))[1]  # type: ignore[arg-type]
    assert isinstance(parts[1], bytes)
    assert isinstance(raw, bytes)
    return {"type": parts[1].decode(), "object": object_codec().decode(raw)}
