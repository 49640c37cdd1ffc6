"""The documentation site: it loads nothing from elsewhere, and its images and pages are current."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from stowplan.queue.pod_record import SubQueue
from stowplan.scheduler.pods.transitions import IN_BINDING_CYCLE, TRANSITIONS
from tests.tidy import tree

DOCS = tree.ROOT / "docs"
SCRIPTS = DOCS / "scripts"
SITE = tree.ROOT / "site"
# Diagram -> what it must show. A pod whose binding is in doubt is `bind unknown` in the glossary.
STATES = {
    "pod.svg": [state.label for state in IN_BINDING_CYCLE],
    "pod_states.svg": [
        label
        for (state, event), transition in TRANSITIONS.items()
        for label in (state.label, event.label, transition.targets[-1].label)
    ],
    "queue.svg": [one.value for one in SubQueue],
    "session.svg": ["reclaim", "allocate", "backfill", "preempt"],
}
NOT_LISTED = {"decisions"}
"""Folders whose pages the build adds to the navigation."""


def script(name: str) -> ModuleType:
    """A module of docs/scripts, which is no package."""
    sys.path.insert(0, str(SCRIPTS))
    try:
        spec = importlib.util.spec_from_file_location(name, SCRIPTS / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module
    finally:
        sys.path.remove(str(SCRIPTS))


foreign_urls = script("foreign_urls")


def sources() -> list[Path]:
    """What a page of the site is made of, as far as it lies in the repository."""
    return [
        path
        for path in tree.files()
        if path.is_relative_to(DOCS) and path.suffix in {".css", ".html", ".js", ".md", ".svg"}
    ]


def loaded(path: Path) -> list[str]:
    """Foreign URLs that a page made of this file would load."""
    text = tree.read(path)
    if path.suffix == ".md":
        return foreign_urls.in_markdown(text)
    return foreign_urls.READERS[path.suffix](text)


def test_no_source_loads_from_elsewhere() -> None:
    assert sources()
    problems = [f"{tree.name(path)}: {url}" for path in sources() for url in loaded(path)]
    assert not problems, tree.report(problems)


def test_the_built_site_loads_nothing_from_elsewhere() -> None:
    if not SITE.is_dir():
        pytest.skip("not built: `make docs`")
    problems = foreign_urls.in_folder(SITE)
    assert not problems, tree.report(problems)


def test_the_theme_is_configured_to_load_no_fonts() -> None:
    text = tree.read(tree.ROOT / "mkdocs.yml")
    settings = yaml.safe_load(text)
    assert settings["theme"]["font"] is False
    assert settings["strict"] is True
    assert "://" not in text


def listed(section: object) -> set[str]:
    """The pages that a navigation names."""
    if isinstance(section, str):
        return {section}
    parts = section.values() if isinstance(section, dict) else section
    return set().union(*(listed(part) for part in parts))  # type: ignore[attr-defined]


def test_every_page_is_in_the_navigation() -> None:
    pages = {
        page.relative_to(DOCS).as_posix() for page in tree.markdown() if page.is_relative_to(DOCS)
    }
    pages = {page for page in pages if page.partition("/")[0] not in NOT_LISTED}
    assert pages
    missing = pages - listed(yaml.safe_load(tree.read(tree.ROOT / "mkdocs.yml"))["nav"])
    assert not missing, missing


def test_images_are_as_the_scripts_draw_them() -> None:
    images = script("draw").images()
    if os.environ.get("STOWPLAN_GOLDEN"):
        for name, text in images.items():
            (DOCS / "images" / name).write_text(text, encoding="utf-8")
    kept = {name: (DOCS / "images" / name).read_text(encoding="utf-8") for name in images}
    stale = [name for name, text in images.items() if kept[name] != text]
    assert not stale, f"`make docs-images` draws them again: {stale}"


def missing_words(words: Iterable[str], image: str) -> list[str]:
    """The words that no text of a diagram has."""
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", image)
    return [word for word in words if not any(word in text for text in texts)]


def test_diagrams_show_every_state_and_step() -> None:
    pages_images = {name: (DOCS / "images" / name).read_text(encoding="utf-8") for name in STATES}
    missing = {name: missing_words(words, pages_images[name]) for name, words in STATES.items()}
    assert not any(missing.values()), missing


def test_control_a_missing_state_is_seen() -> None:
    image = '<text class="title" x="1">waiting</text>'
    assert missing_words(["waiting", "parked"], image) == ["parked"]


def test_images_suit_light_and_dark_pages() -> None:
    for path in sorted((DOCS / "images").glob("*.svg")):
        assert "prefers-color-scheme: dark" in path.read_text(encoding="utf-8"), path.name


@pytest.mark.parametrize(
    "text",
    [
        '<script src="https://example.com/a.js"></script>',
        '<img src="//example.com/a.png">',
        '<link rel="stylesheet" href="https://example.com/a.css">',
        "<style>@import 'https://example.com/a.css';</style>",
        '<p style="background: url(https://example.com/a.png)">',
        '<img srcset="a.png, https://example.com/b.png 2x">',
    ],
)
def test_control_what_a_page_would_load_is_seen(text: str) -> None:
    assert foreign_urls.in_html(text)


def test_control_links_and_namespaces_are_not_loaded() -> None:
    assert not foreign_urls.in_html('<a href="https://example.com">x</a><img src="a.png">')
    assert not foreign_urls.in_html('<svg xmlns="http://www.w3.org/2000/svg"></svg>')
    assert foreign_urls.in_markdown("![x](https://example.com/a.png)")
    assert not foreign_urls.in_markdown("[x](https://example.com) ![x](a.png)")
    assert foreign_urls.in_script('fetch("https://example.com/x")')
    assert not foreign_urls.in_script('/* https://example.com */ "http://www.w3.org/1999/xhtml"')


def test_control_scripts_lose_the_urls_of_unused_features(tmp_path: Path) -> None:
    (tmp_path / "a.js").write_text('load("https://unpkg.com/x@1/y.js"); load("https://a.example/")')
    foreign_urls.remove_from_scripts(tmp_path)
    assert foreign_urls.in_folder(tmp_path) == ["a.js: https://a.example/"]
