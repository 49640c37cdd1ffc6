"""Links from a page to files of the repository: each such file becomes a page of the site."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

LINK = re.compile(r"(\]\(\s*)<?([^)\s>#]+)(#[^)\s>]*)?>?([^)]*\))")
FENCED = re.compile(r"(^(```|~~~).*?^\2)", re.MULTILINE | re.DOTALL)
OUTSIDE = re.compile(r"^(?:[a-z][a-z+.-]*:|/)")
# Longer files are shown up to here.
LINES_MAX = 1_500
LANGUAGES = {
    ".py": "python",
    ".yaml": "yaml",
    ".yml": "yaml",
    ".json": "json",
    ".toml": "toml",
    ".svg": "xml",
}
HIDDEN = "---\nsearch:\n  exclude: true\n---\n\n"


def target_of(root: Path, page: str, link: str) -> str | None:
    """The repository path that `link` on `page` leads to; None where it is no file outside docs/.

    page: path below docs/, or below project/ for pages made of files of the repository.
    """
    if OUTSIDE.match(link):
        return None
    path = posixpath.normpath(posixpath.join(posixpath.dirname(_place(page)), link))
    if path.startswith("docs/") or not (root / path).exists():
        return None
    return path


def page_of(path: str) -> str:
    """The page that shows the repository file `path`."""
    return f"project/{path}" if path.endswith(".md") else f"source/{path}.md"


def pages(root: Path, texts: dict[str, str]) -> dict[str, str]:
    """The pages to make: those of files that `texts` link to, and of what these link to."""
    made = {page_of(name): _shown(root, name) for name in _roots(root)}
    waiting = {**texts, **made}
    while waiting:
        page, text = waiting.popitem()
        for link in _links(text):
            path = target_of(root, page, link)
            if path is not None and page_of(path) not in made:
                made[page_of(path)] = waiting[page_of(path)] = _shown(root, path)
    return made


def with_links(root: Path, page: str, text: str) -> str:
    """`text` with its links to files of the repository turned into links to their pages."""

    def replaced(match: re.Match[str]) -> str:
        before, link, fragment, after = match.groups()
        path = target_of(root, page, link)
        if path is not None:
            link = posixpath.relpath(page_of(path), posixpath.dirname(page))
        elif page.startswith("project/"):
            link = _to_docs(page, link)
        return f"{before}{link}{fragment or ''}{after}"

    parts = FENCED.split(text)
    # The pattern's groups: prose, fenced block, its fence, prose, ...
    for i in range(0, len(parts), 3):
        parts[i] = LINK.sub(replaced, parts[i])
    return "".join(part for i, part in enumerate(parts) if i % 3 != 2)


def _place(page: str) -> str:
    """Where the text of a page lies in the repository."""
    return page.removeprefix("project/") if page.startswith("project/") else f"docs/{page}"


def _to_docs(page: str, link: str) -> str:
    """A link from a file of the repository to a page below docs/, as the page's own link."""
    if OUTSIDE.match(link):
        return link
    path = posixpath.normpath(posixpath.join(posixpath.dirname(_place(page)), link))
    if path == "docs":
        path = "docs/index.md"
    if not path.startswith("docs/"):
        return link
    return posixpath.relpath(path.removeprefix("docs/"), posixpath.dirname(page))


def _links(text: str) -> list[str]:
    prose = FENCED.sub("", text)
    return [match[1] for match in LINK.findall(prose)]


def _roots(root: Path) -> list[str]:
    return [
        name
        for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "README.md")
        if (root / name).is_file()
    ]


def _shown(root: Path, path: str) -> str:
    """The page of a file or folder of the repository."""
    place = root / path
    if place.is_dir():
        names = sorted(
            one.name + "/" * one.is_dir()
            for one in place.iterdir()
            if not one.name.startswith((".", "__pycache__"))
        )
        return f"{HIDDEN}# {path}/\n\n" + "".join(f"- `{name}`\n" for name in names)
    text = place.read_text(encoding="utf-8")
    if path.endswith(".md"):
        return HIDDEN + text if text.startswith("#") else text
    lines = text.splitlines()
    rest = f"\n{len(lines) - LINES_MAX} lines more.\n" if len(lines) > LINES_MAX else ""
    language = LANGUAGES.get(place.suffix, "text")
    body = "\n".join(lines[:LINES_MAX])
    return f"{HIDDEN}# {path}\n\n~~~~{language}\n{body}\n~~~~\n{rest}"
