"""Which form an answer takes: JSON or YAML, pretty or not, table or metadata only.

Differs: protobuf is not spoken. A client that takes nothing else is told 406, one that sends it
415, both with a text that names the setting to change. Refusals of other types list it all the
same, as the original's do.
Source: apiserver v0.36, endpoints/handlers/negotiation; go-restful's refusals as recorded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import msgspec
import yaml

from stowplan.cluster.errors import ApiError
from stowplan.cluster.wire import Request

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
OFFERED = (JSON, YAML)
TRANSFORMED = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
BODIES = (JSON, YAML, PROTOBUF)
SUPPORTED = ", ".join(BODIES)
STREAMS = "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
PROTOBUF_MAGIC = b"k8s\x00"
UNSPOKEN = "which this server does not speak; set the client's `contentType: application/json`"


class Form(msgspec.Struct, frozen=True):
    """How to answer. kind: "" for the object itself, else one of TRANSFORMED; version: of it."""

    media: str = JSON
    pretty: bool = False
    kind: str = ""
    version: str = ""

    @property
    def api_version(self) -> str:
        """`meta.k8s.io/v1`."""
        return f"meta.k8s.io/{self.version}"


PLAIN = Form()


def refused(message: str) -> ApiError:
    """406 with this text."""
    return ApiError(406, "NotAcceptable", message)


def not_routed(watchable: bool) -> ApiError:
    """406 of a path that offers none of the types asked for."""
    offers = f"{SUPPORTED}, {STREAMS}" if watchable else SUPPORTED
    text = f"406: Not Acceptable\n\nAvailable representations: {offers}"
    return ApiError(406, "NotAcceptable", text, {})


def clauses(header: str) -> list[tuple[str, dict[str, str]]]:
    """Media types with their parameters, the most wanted first."""
    found: list[tuple[float, int, str, dict[str, str]]] = []
    for part in header.split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        cut = (parameter.partition("=") for parameter in parameters if parameter)
        given = {name: value for name, _, value in cut}
        quality = _quality(given.pop("q", "1"))
        # What is more exact goes first among the equally wanted.
        exact = 0 if media == "*/*" else 1 if media.endswith("/*") else 2
        found.append((quality, exact, media, given))
    found.sort(key=lambda clause: (-clause[0], -clause[1]))
    return [(media, given) for _, _, media, given in found]


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


def form_of(request: Request, transforms: bool = True, watch: bool = False) -> Form:
    """The form a client wants. Raises ApiError 406.

    transforms: tables and metadata may be asked for. watch: the answer is a stream; the path was
    routed already, so only the second of the two refusals can happen.
    """
    header = request.headers.get("accept", "")
    pretty = _pretty(request)
    if not header or header == JSON:
        return Form(pretty=pretty) if pretty else PLAIN
    for media, given in clauses(header):
        for offer in OFFERED:
            if media in (offer, "*/*", offer.split("/")[0] + "/*"):
                form = _form(offer, given, transforms, pretty)
                if form is not None:
                    if watch and offer != JSON:
                        raise refused(f"only the following media types are accepted: {STREAMS}")
                    return form
    if any(media == PROTOBUF for media, _ in clauses(header)):
        raise refused(f"the request asks for protobuf, {UNSPOKEN}")
    raise refused(f"only the following media types are accepted: {SUPPORTED}")


def check_routed(request: Request, watchable: bool) -> None:
    """Raises ApiError 406 when no media type asked for is one that the path speaks at all."""
    header = request.headers.get("accept", "")
    if not header or header == JSON:
        return
    for part in header.split(","):
        media = part.split(";", 1)[0].strip()
        if media in BODIES or media == "*/*":
            return
    raise not_routed(watchable)


def _form(media: str, given: Mapping[str, str], transforms: bool, pretty: bool) -> Form | None:
    stream = given.get("stream", "")
    if (stream and stream != "watch") or given.get("sv"):
        return None
    pretty = pretty or given.get("pretty") == "1"
    if not {"as", "g", "v"} & set(given):
        return Form(media, pretty)
    kind, version = given.get("as", ""), given.get("v", "")
    known = kind in TRANSFORMED and given.get("g") == "meta.k8s.io"
    if not transforms or not known or version not in ("v1", "v1beta1"):
        return None
    return Form(media, pretty, kind, version)


def _pretty(request: Request) -> bool:
    for name, value in request.query:
        if name == "pretty" and value:
            return value in ("1", "t", "T", "TRUE", "true", "True")
    agent = request.headers.get("user-agent", "")
    return agent.startswith(("curl", "Wget", "Mozilla/5.0"))


class _Dumper(yaml.SafeDumper):
    """Quotes as Go's library does: double ones for a text that would be read as something else."""


def _text(dumper: Any, text: str) -> Any:
    plain = dumper.resolve(yaml.ScalarNode, text, (True, False)) == "tag:yaml.org,2002:str"
    if "\n" in text and text == text.rstrip(" "):
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, "|")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if plain else '"')


_Dumper.add_representer(str, _text)


def encoded(tree: Any, form: Form) -> bytes:
    """A tree in the media type of the form."""
    return dressed(msgspec.json.encode(tree), form)


def dressed(value: bytes, form: Form) -> bytes:
    """Canonical JSON bytes as the form has them."""
    if form.media == YAML:
        dumped: str = yaml.dump(
            msgspec.json.decode(value), Dumper=_Dumper, default_flow_style=False, allow_unicode=True
        )
        return dumped.encode()
    if form.pretty:
        # msgspec's own indenting would be as good, but lists of none print otherwise.
        text = json.dumps(msgspec.json.decode(value), indent=2, ensure_ascii=False)
        return text.encode() + b"\n"
    return value + b"\n"


def body_type(request: Request) -> str:
    """The media type of a body that is to be decoded. Raises ApiError 415."""
    header = request.headers.get("content-type", "")
    media = header.split(";", 1)[0].strip().lower()
    if not media:
        return JSON
    if media not in BODIES:
        raise unsupported(BODIES)
    return media


def unsupported(wanted: tuple[str, ...]) -> ApiError:
    """415 that lists what is taken."""
    text = "the body of the request was in an unknown format - accepted media types include: "
    return ApiError(415, "UnsupportedMediaType", text + ", ".join(wanted))


def protobuf_refused() -> ApiError:
    """415 of a protobuf body."""
    text = f"the body of the request is protobuf, {UNSPOKEN}"
    return ApiError(415, "UnsupportedMediaType", text)
