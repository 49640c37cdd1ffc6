"""One self-contained HTML file: modules, style and data inlined under a strict policy.

The policy allows the one script and the one style by their SHA-256 and nothing else: no request can
leave the page. It works from `file://`.
"""

from __future__ import annotations

import base64
import hashlib
import posixpath
import re
from html import escape
from importlib.resources import files

import msgspec

STYLE = "report.css"
ENTRY = "report.js"

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "(\.\.?/[a-z_/]+\.js)";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export ((?:function|const|class) ([A-Za-z0-9_]+))", re.MULTILINE)


def single_file(title: str, body: str, data: object | None) -> str:
    """The page. body: markup. data: what the scripts draw; None: a page without script."""
    style = static_text(STYLE)
    scripts = "" if data is None else joined_modules(ENTRY)
    policy = policy_of(scripts, style)
    tail = "" if data is None else f"{_data_block(data)}<script>{scripts}</script>\n"
    return (
        "<!DOCTYPE html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{escape(policy)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n<style>{style}</style>\n</head>\n"
        f"<body>\n{body}\n{tail}</body>\n</html>\n"
    )


def policy_of(script: str, style: str) -> str:
    """The Content-Security-Policy of a page with one inline script ("" for none) and one style."""
    rules = ["default-src 'none'", f"style-src '{_hash(style)}'"]
    if script:
        rules.append(f"script-src '{_hash(script)}'")
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])


def static_text(name: str) -> str:
    """A file of `static/`."""
    return (files("stowplan.web") / "static" / name).read_text(encoding="utf-8")


def joined_modules(entry: str) -> str:
    """The module and all that it imports as one script.

    Each module is a function that runs once, after those that it imports, so that its own names
    stay its own. Imports and exports are a line each, without other names (`as`).
    """
    done: dict[str, str] = {}
    _join(entry, done, ())
    return '"use strict";\n(() => {\nconst modules = {};\n' + "".join(done.values()) + "})();\n"


def _join(name: str, done: dict[str, str], importers: tuple[str, ...]) -> None:
    if name in importers:
        raise ValueError(f"{name} imports itself: {' > '.join((*importers, name))}")
    if name in done:
        return
    text = static_text(name)
    for _, imported in _IMPORT.findall(text):
        _join(_module_of(imported, name), done, (*importers, name))

    def place(match: re.Match[str]) -> str:
        return f'const {match[1]} = modules["{_module_of(match[2], name)}"];\n'

    exports = ", ".join(found for _, found in _EXPORT.findall(text))
    text = _EXPORT.sub(r"\1", _IMPORT.sub(place, text))
    done[name] = f'modules["{name}"] = (() => {{\n{text}return {{ {exports} }};\n}})();\n'


def _module_of(imported: str, importer: str) -> str:
    """The module below `static/` that an import of another one names."""
    return posixpath.normpath(posixpath.join(posixpath.dirname(importer), imported))


def _data_block(data: object) -> str:
    # No text of the data can end the element or begin a comment.
    text = msgspec.json.encode(data).decode().replace("<", "\\u003c")
    return f'<script type="application/json" id="data">{text}</script>\n'


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"sha256-{base64.b64encode(digest).decode()}"
