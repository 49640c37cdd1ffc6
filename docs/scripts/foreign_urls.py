"""URLs of other hosts that a page of the site would load."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

# Attributes whose URL the browser loads by itself. A link that a reader follows is none of them.
LOADED = {
    ("audio", "src"),
    ("embed", "src"),
    ("iframe", "src"),
    ("image", "href"),
    ("image", "xlink:href"),
    ("img", "src"),
    ("img", "srcset"),
    ("input", "src"),
    ("object", "data"),
    ("script", "src"),
    ("source", "src"),
    ("source", "srcset"),
    ("track", "src"),
    ("use", "href"),
    ("use", "xlink:href"),
    ("video", "poster"),
    ("video", "src"),
}
# The relations of <link> that only name another page.
NAMING = {"alternate", "author", "canonical", "license", "next", "prev"}
FOREIGN = re.compile(r"^\s*(?:[a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)
IMAGE = re.compile(r"!\[[^\]]*\]\(\s*<?([^)\s>]+)")
FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CSS_LOAD = re.compile(r"(?:url\(\s*|@import\s+)[\"']?((?:https?:)?//[^\"')\s]+)", re.IGNORECASE)
# Namespaces are names; the other one stands in the text of a warning.
ONLY_TEXT = ("http://www.w3.org/", "https://bit.ly/2s3ChXG")
SCRIPT_URL = re.compile(r"https?://[\w.-]+\.[a-z]{2,}[^\"'`\s)]*|https?://\$\{[^}]*\}[^\"'`\s)]*")
# What the theme's script loads for features that the site does not use: diagrams drawn in the
# browser, figures of a public repository, browsers without ResizeObserver, pages without a server.
UNUSED_HOSTS = ("unpkg.com", "api.github.com", "${")


def in_html(text: str) -> list[str]:
    """The foreign URLs that a browser loads when it shows this HTML or SVG."""
    reader = _Reader()
    reader.feed(text)
    return reader.found


def in_markdown(text: str) -> list[str]:
    """The foreign URLs that a page of Markdown loads: images, and what its HTML loads."""
    prose = FENCED.sub("", text)
    return [url for url in IMAGE.findall(prose) if FOREIGN.match(url)] + in_html(prose)


def in_css(text: str) -> list[str]:
    """The foreign URLs that a style sheet loads."""
    return CSS_LOAD.findall(text)


def in_script(text: str) -> list[str]:
    """The foreign URLs in a script, except in comments and texts."""
    code = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    return [url for url in SCRIPT_URL.findall(code) if not url.startswith(ONLY_TEXT)]


READERS = {".html": in_html, ".svg": in_html, ".css": in_css, ".js": in_script}


def in_folder(folder: Path) -> list[str]:
    """`file: URL` for each foreign URL that the files of a built site would load."""
    return [
        f"{path.relative_to(folder)}: {url}"
        for path in sorted(folder.rglob("*"))
        if path.suffix in READERS and not _is_search_language(path)
        for url in READERS[path.suffix](path.read_text(encoding="utf-8"))
    ]


def remove_from_scripts(folder: Path) -> None:
    """Replace the URLs of UNUSED_HOSTS in the scripts of a built site by one that loads nothing."""
    for path in folder.rglob("*.js"):
        text = path.read_text(encoding="utf-8")
        for url in set(in_script(text)):
            if url.split("://", 1)[1].startswith(UNUSED_HOSTS):
                text = text.replace(url, "about:blank")
        path.write_text(text, encoding="utf-8")


def _is_search_language(path: Path) -> bool:
    """True for the stemmers, whose comments name their authors' sites and which load nothing."""
    return "lunr" in path.parts


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._is_style = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        for name, value in given.items():
            if (tag, name) in LOADED:
                self.found += [url for url in _urls(name, value) if FOREIGN.match(url)]
            if name == "style":
                self.found += in_css(value)
        relations = set(given.get("rel", "").split())
        if tag == "link" and not relations & NAMING and FOREIGN.match(given.get("href", "")):
            self.found.append(given["href"])
        self._is_style = tag == "style"

    def handle_endtag(self, tag: str) -> None:
        self._is_style = False

    def handle_data(self, data: str) -> None:
        if self._is_style:
            self.found += in_css(data)


def _urls(name: str, value: str) -> list[str]:
    if name != "srcset":
        return [value]
    return [part.split()[0] for part in value.split(",") if part.split()]
