"""Content negotiation: JSON, YAML or protobuf, pretty or not, table or metadata only.

Source: apiserver v0.36, endpoints/handlers/negotiation; go-restful's errors as recorded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import msgspec
import yaml

from stowplan.apis.machinery.errors import ApiError
from stowplan.apis.machinery.http_messages import HttpRequest
from stowplan.apis.protobuf.object_codec import object_codec

JSON, YAML, PROTOBUF = "application/json", "application/yaml", "application/vnd.kubernetes.protobuf"
WATCH_PROTOBUF = f"{PROTOBUF};stream=watch"
TRANSFORMED_KINDS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
BODY_MEDIA = (JSON, YAML, PROTOBUF)
SUPPORTED_MEDIA_TEXT = ", ".join(BODY_MEDIA)
STREAM_MEDIA_TEXT = (
    "application/json;stream=watch, application/vnd.kubernetes.protobuf;stream=watch"
)


class ResponseForm(msgspec.Struct, frozen=True):
    """The form of a response. kind: "" for the object itself or one of TRANSFORMED."""

    media: str = JSON
    pretty: bool = False
    kind: str = ""
    version: str = ""

    @property
    def api_version(self) -> str:
        """`meta.k8s.io/v1`."""
        return f"meta.k8s.io/{self.version}"


PLAIN_JSON = ResponseForm()


@lru_cache(maxsize=64)
def headers_of(media: str) -> tuple[tuple[str, str], ...]:
    """The headers of every response in a media type."""
    return ("Content-Type", media), ("Cache-Control", "no-cache, private")


def not_acceptable(message: str) -> ApiError:
    """406 with this text."""
    return ApiError(406, "NotAcceptable", message)


def path_not_acceptable(watchable: bool, media: str = SUPPORTED_MEDIA_TEXT) -> ApiError:
    """406 of a path that supports none of the accepted types. media: those that it supports."""
    offers = f"{media}, {STREAM_MEDIA_TEXT}" if watchable else media
    text = f"406: Not Acceptable\n\nAvailable representations: {offers}"
    return ApiError(406, "NotAcceptable", text, {})


def accept_clauses(header: str) -> list[tuple[str, dict[str, str]]]:
    """The accepted media types with their parameters, by preference."""
    found: list[tuple[float, int, str, dict[str, str]]] = []
    for part in header.split(","):
        media, *parameters = (piece.strip() for piece in part.split(";"))
        cut = (parameter.partition("=") for parameter in parameters if parameter)
        given = {name: value for name, _, value in cut}
        quality = _quality(given.pop("q", "1"))
        # Of equal preference the more specific one goes first.
        exact = 0 if media == "*/*" else 1 if media.endswith("/*") else 2
        found.append((quality, exact, media, given))
    found.sort(key=lambda clause: (-clause[0], -clause[1]))
    return [(media, given) for _, _, media, given in found]


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 1.0


def negotiate(
    request: HttpRequest,
    transforms: bool = True,
    watch: bool = False,
    has_messages: bool = True,
    tables: bool = True,
) -> ResponseForm:
    """The form of the response to a client. Raises ApiError 406.

    transforms: tables and metadata are supported. tables: False: not tables, as where an action is
    answered. watch: the response is a stream; the path was routed already, so only the second of
    the two errors can occur. has_messages: the kind can be written as protobuf; of others only the
    metadata can.
    """
    header = request.headers.get("accept", "")
    pretty = _wants_pretty(request)
    if not header or header == JSON:
        return ResponseForm(pretty=pretty) if pretty else PLAIN_JSON
    for media, given in accept_clauses(header):
        for offer in BODY_MEDIA:
            if media in (offer, "*/*", offer.split("/")[0] + "/*"):
                form = _form(offer, given, transforms, pretty)
                is_offered = offer != PROTOBUF or has_messages
                if form is not None and form.kind == "Table" and not tables:
                    continue
                if form is not None and (form.kind or is_offered):
                    if watch and offer == YAML:
                        raise not_acceptable(
                            f"only the following media types are accepted: {STREAM_MEDIA_TEXT}"
                        )
                    return form
    raise not_acceptable(f"only the following media types are accepted: {SUPPORTED_MEDIA_TEXT}")


def check_routed(request: HttpRequest, watchable: bool) -> None:
    """Raises ApiError 406 if the path supports none of the accepted media types."""
    header = request.headers.get("accept", "")
    if not header or header == JSON:
        return
    for part in header.split(","):
        media = part.split(";", 1)[0].strip()
        if media in BODY_MEDIA or media == "*/*":
            return
    raise path_not_acceptable(watchable)


def _form(
    media: str, given: Mapping[str, str], transforms: bool, pretty: bool
) -> ResponseForm | None:
    stream = given.get("stream", "")
    if (stream and stream != "watch") or given.get("sv"):
        return None
    pretty = pretty or given.get("pretty") == "1"
    if not {"as", "g", "v"} & set(given):
        return ResponseForm(media, pretty)
    kind, version = given.get("as", ""), given.get("v", "")
    known = kind in TRANSFORMED_KINDS and given.get("g") == "meta.k8s.io"
    if not transforms or not known or version not in ("v1", "v1beta1"):
        return None
    if kind == "Table" and media == PROTOBUF:
        # Tables have no message.
        return None
    return ResponseForm(media, pretty, kind, version)


def _wants_pretty(request: HttpRequest) -> bool:
    for name, value in request.query:
        if name == "pretty" and value:
            return value in ("1", "t", "T", "TRUE", "true", "True")
    agent = request.headers.get("user-agent", "")
    return agent.startswith(("curl", "Wget", "Mozilla/5.0"))


class _GoYamlDumper(yaml.SafeDumper):
    """Quotes as Go's library does: double quotes for strings that parse as another type."""


def _represent_text(dumper: Any, text: str) -> Any:
    plain = dumper.resolve(yaml.ScalarNode, text, (True, False)) == "tag:yaml.org,2002:str"
    if "\n" in text and text == text.rstrip(" "):
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, "|")
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, None if plain else '"')


_GoYamlDumper.add_representer(str, _represent_text)


def encode_in_form(tree: Any, form: ResponseForm) -> bytes:
    """A tree in the media type of the form."""
    return in_form(msgspec.json.encode(tree), form)


def in_form(value: bytes, form: ResponseForm) -> bytes:
    """Canonical JSON bytes converted to a form."""
    if form.media == PROTOBUF:
        return object_codec().encode(msgspec.json.decode(value))
    if form.media == YAML:
        dumped: str = yaml.dump(
            msgspec.json.decode(value),
            Dumper=_GoYamlDumper,
            default_flow_style=False,
            allow_unicode=True,
        )
        return dumped.encode()
    if form.pretty:
        # msgspec's indentation prints empty lists differently.
        text = json.dumps(msgspec.json.decode(value), indent=2, ensure_ascii=False)
        return text.encode() + b"\n"
    return value + b"\n"


def body_media_type(request: HttpRequest) -> str:
    """The media type of a request body. Raises ApiError 415."""
    header = request.headers.get("content-type", "")
    media = header.split(";", 1)[0].strip().lower()
    if not media:
        return JSON
    if media not in BODY_MEDIA:
        raise unsupported_media_type(BODY_MEDIA)
    return media


def unsupported_media_type(wanted: tuple[str, ...]) -> ApiError:
    """415 that lists the supported types."""
    text = "the body of the request was in an unknown format - accepted media types include: "
    return ApiError(415, "UnsupportedMediaType", text + ", ".join(wanted))
