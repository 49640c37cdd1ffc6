"""Documentation points at things that exist, and every registered plugin is documented."""

import ast
import re
from collections.abc import Collection
from functools import cache
from pathlib import Path

from stowplan.assembly.in_tree import IN_TREE
from stowplan.cli.main import COMMANDS
from tests.tidy import tree

FENCED = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
INLINE_CODE = re.compile(r"`[^`\n]*`")
LINK = re.compile(r"\[[^\]]*\]\(\s*<?([^)\s>]+)>?[^)]*\)|^\[[^\]]+\]:\s*(\S+)", re.MULTILINE)
HEADING = re.compile(r"^#+\s+(.*?)\s*#*$", re.MULTILINE)
OUTSIDE = re.compile(r"^[a-z][a-z+.-]*:")
NAMED_FILE = re.compile(r"`((?:[\w.-]+/)+[\w.-]+\.(?:py|md|yaml|yml|toml|json|svg))`")
# Named paths are below one of these; a record or a change log may name what is gone.
BASES = ("", "src/stowplan/", "docs/")
PLACEHOLDER = re.compile(r"\b[A-Z]{4,}\b")
HISTORY = ("CHANGELOG.md", "docs/parity", "tests/")
GENERATED = re.compile(r'^ {4}"([\w/-]+\.md)":', re.MULTILINE)
TEST_NAME = re.compile(r"\btests/[\w/]+\.py(?:::(\w+))?")


def anchors(text: str) -> set[str]:
    """The fragments that a page offers: its headings in lower case, words joined by hyphens."""
    found: set[str] = set()
    for title in HEADING.findall(FENCED.sub("", text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", title)
        slug = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        unique = [slug, *(f"{slug}-{n}" for n in range(1, 100))]
        found.add(next(one for one in unique if one not in found))
    return found


def broken_links(page: Path, text: str) -> list[str]:
    """Relative links of `page` whose file or heading does not exist."""
    prose = INLINE_CODE.sub("", FENCED.sub("", text))
    targets = [inline or reference for inline, reference in LINK.findall(prose)]
    return [
        f"{page.name}: link to {target} leads nowhere"
        for target in targets
        if not OUTSIDE.match(target) and not _resolves(page, text, target)
    ]


def _resolves(page: Path, text: str, target: str) -> bool:
    place, _, fragment = target.partition("#")
    file = page.parent / place if place else page
    if file != page and not file.exists():
        return file in generated_pages()
    if not fragment or file.suffix != ".md":
        return True
    return fragment in anchors(text if file == page else tree.read(file))


@cache
def generated_pages() -> set[Path]:
    """The pages that the build of the site makes from code."""
    hooks = tree.read(tree.ROOT / "docs" / "scripts" / "hooks.py")
    return {tree.ROOT / "docs" / name for name in GENERATED.findall(hooks)}


def missing_files(where: str, text: str) -> list[str]:
    """Files that a page names in code and that the repository does not have."""
    return [
        f"{where}: names {name}, which does not exist"
        for name in NAMED_FILE.findall(FENCED.sub("", text))
        if not PLACEHOLDER.search(name)
        and not any((tree.ROOT / base / name).exists() for base in BASES)
    ]


def missing_tests(where: str, text: str) -> list[str]:
    """Tests that a page names as holding an invariant, and that are not there."""
    return [
        f"{where}: names {match[0]}, which does not exist"
        for match in TEST_NAME.finditer(text)
        if not _test_exists(*match[0].partition("::")[::2])
    ]


def _test_exists(file: str, function: str) -> bool:
    path = tree.ROOT / file
    if not path.is_file():
        return False
    return not function or function in _defined(tree.read(path))


@cache
def _defined(text: str) -> set[str]:
    return {node.name for node in tree.nodes(text, ast.FunctionDef, ast.ClassDef)}


def undocumented(names: Collection[str], text: str) -> list[str]:
    """The plugins of `names` that the page never mentions."""
    words = set(re.findall(r"\w+", text))
    return [f"docs/plugins-reference.md: {name} is missing" for name in names if name not in words]


def test_links_lead_somewhere() -> None:
    pages = tree.markdown()
    assert pages, "no pages were found, so nothing was checked"
    problems = [line for page in pages for line in broken_links(page, tree.read(page))]
    assert not problems, tree.report(problems)


def test_named_tests_exist() -> None:
    pages = tree.markdown()
    problems = [line for page in pages for line in missing_tests(tree.name(page), tree.read(page))]
    assert not problems, tree.report(problems)


def test_named_files_exist() -> None:
    pages = [page for page in tree.markdown() if not tree.name(page).startswith(HISTORY)]
    problems = [line for page in pages for line in missing_files(tree.name(page), tree.read(page))]
    assert not problems, tree.report(problems)


def test_every_command_has_an_entry_point() -> None:
    text = tree.read(tree.ROOT / "ARCHITECTURE.md")
    missing = [name for name in COMMANDS if f"| `{name}` |" not in text]
    assert not missing, missing


def test_every_registered_plugin_is_documented() -> None:
    assert IN_TREE, "the registry is empty, so nothing was checked"
    problems = undocumented(IN_TREE, tree.read(tree.ROOT / "docs" / "plugins-reference.md"))
    assert not problems, tree.report(problems)


def test_decisions_are_named_by_number_and_noun() -> None:
    pages = [page for page in tree.markdown() if page.parent.name == "decisions"]
    misnamed = [page.name for page in pages if not re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", page.name)]
    assert not misnamed, misnamed
    numbers = [page.name[:4] for page in pages]
    assert len(numbers) == len(set(numbers)), f"a number is used twice: {sorted(numbers)}"


def test_control_links(tmp_path: Path) -> None:
    other = tmp_path / "other.md"
    other.write_text("# A title, with `code`\n## Twice\n## Twice\n")
    page = tmp_path / "page.md"

    def check(text: str) -> list[str]:
        return broken_links(page, text)

    good = "[a](other.md) [b](other.md#a-title-with-code) [c](other.md#twice-1) [d](https://x/y)"
    assert not check(good)
    assert not check("```\n[a](gone.md)\n```\n`[a](gone.md)`\n# Here\n[a](#here)")
    assert check("[a](gone.md)")
    assert check("[a](other.md#gone)")
    assert check("[a](#gone)")
    assert check("[a][x]\n\n[x]: gone.md\n")


def test_control_missing_files() -> None:
    assert not missing_files("x.md", "`docs/glossary.md`, `queue/heap.py`, `heap.py`, `a/NAME.py`")
    assert missing_files("x.md", "`queue/pile.py`")


def test_control_generated_pages() -> None:
    page = tree.ROOT / "docs" / "index.md"
    assert not broken_links(page, "[a](reference/cli.md)")
    assert broken_links(page, "[a](reference/gone.md)")


def test_control_missing_tests() -> None:
    here = "tests/tidy/test_docs.py"
    assert not missing_tests("x.md", f"held by `{here}` and `{here}::test_control_links`")
    assert missing_tests("x.md", f"held by `{here}::test_gone_away`")
    assert missing_tests("x.md", "held by `tests/gone/test_away.py`")


def test_control_undocumented() -> None:
    assert not undocumented(["NodeName"], "## NodeName\n")
    assert undocumented(["NodeName"], "## NodeNames\n")
