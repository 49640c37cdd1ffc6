"""Hooks of the site's build: generated pages, links to files of the repository, no foreign URLs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import foreign_urls
import reference_pages
import repository_files
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parents[2]

GENERATED = {
    "reference/cli.md": reference_pages.commands,
    "reference/configuration.md": reference_pages.configuration,
    "reference/metrics.md": reference_pages.metrics,
    "decisions/index.md": lambda: reference_pages.decisions(ROOT / "docs" / "decisions"),
}


def on_config(config: Any) -> Any:
    """Put the decision records into the navigation, by number."""
    records = sorted((ROOT / "docs" / "decisions").glob("[0-9]*.md"))
    section = next(
        one["Decisions"] for one in config.nav[-1]["Contributor guide"] if "Decisions" in one
    )
    section += [f"decisions/{path.name}" for path in records]
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the generated pages, and a page for each file of the repository that pages link to."""
    for path, write in GENERATED.items():
        files.append(File.generated(config, path, content=write()))
    pages = {file.src_uri: file.content_string for file in files.documentation_pages()}
    for path, text in repository_files.pages(ROOT, pages).items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Point links that leave docs/ to the pages made of those files."""
    return repository_files.with_links(ROOT, page.file.src_uri, markdown)


def on_post_build(config: Any) -> None:
    """Remove the URLs in the theme's script that it would load for features that are not used."""
    foreign_urls.remove_from_scripts(Path(config.site_dir))
    found = foreign_urls.in_folder(Path(config.site_dir))
    if found:
        raise SystemExit("Pages would load from another host:\n" + "\n".join(found))
