"""Static files of the page, read once and kept, also compressed."""

from __future__ import annotations

import gzip
import hashlib
from importlib.resources import files
from importlib.resources.abc import Traversable

import msgspec
from aiohttp import web

TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}
PAGE = "page.html"
_COMPRESSED = (".html", ".js", ".css", ".svg")


class StaticFile(msgspec.Struct, frozen=True):
    """A file. compressed: with gzip, b"" where that does not pay. etag: of its content."""

    content: bytes
    compressed: bytes
    content_type: str
    etag: str


def read_static_files(folder: Traversable | None = None) -> dict[str, StaticFile]:
    """Files by their path below the folder, with `/`. folder: None for that of the package."""
    found: dict[str, StaticFile] = {}
    _read(folder or files("stowplan.web") / "static", "", found)
    return found


def _read(folder: Traversable, prefix: str, found: dict[str, StaticFile]) -> None:
    for entry in folder.iterdir():
        path = prefix + entry.name
        suffix = path[path.rfind(".") :]
        if entry.is_dir():
            _read(entry, f"{path}/", found)
        elif suffix in TYPES:
            content = entry.read_bytes()
            compressed = gzip.compress(content, mtime=0) if suffix in _COMPRESSED else b""
            etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
            found[path] = StaticFile(content, compressed, TYPES[suffix], etag)


def static_response(file: StaticFile, request: web.Request) -> web.Response:
    """The answer with a file; 304 if the browser has it."""
    headers = {"ETag": file.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if request.headers.get("If-None-Match") == file.etag:
        return web.Response(status=304, headers=headers)
    body = file.content
    if file.compressed and "gzip" in request.headers.get("Accept-Encoding", ""):
        body = file.compressed
        headers["Content-Encoding"] = "gzip"
    charset = None if file.content_type == "image/png" else "utf-8"
    return web.Response(body=body, content_type=file.content_type, charset=charset, headers=headers)
