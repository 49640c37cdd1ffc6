"""Nothing tracked names a place on one machine or the host of a package registry."""

import re
from pathlib import Path

import pytest

from tests.tidy import tree

# Spelt with character classes so that this file passes its own test.
MACHINE = re.compile(r"(?<![\w.:/-])/(?:home|root|tmp|work|Users|farm)[/]\w")
REGISTRY = re.compile(
    r"pypi[.]org|pythonhosted[.]org|npmjs[.]org|crates[.]io|deb[.]debian[.]org|anaconda[.]org"
)
BESIDE = re.compile(r"[.][.]/share[d]\b")
# The one file that may look beside the checkout, for the traces.
MAY_LOOK_BESIDE = ".ci/run"
LOCKS = ("requirements.lock", "requirements-dev.lock")


def places(where: str, text: str) -> list[str]:
    patterns = [MACHINE, REGISTRY] + ([] if where == MAY_LOOK_BESIDE else [BESIDE])
    return [
        f"{where}:{number}: names {match[0]!r}, which is not part of the project"
        for number, line in enumerate(text.split("\n"), 1)
        for pattern in patterns
        if (match := pattern.search(line))
    ]


def text_of(path: Path) -> str:
    """The text of `path`; nothing for a file that is no text."""
    try:
        return tree.read(path)
    except UnicodeDecodeError:
        return ""


def test_no_file_names_a_place() -> None:
    paths = tree.files()
    problems = [line for path in paths for line in places(tree.name(path), text_of(path))]
    assert not problems, tree.report(problems)


@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_carries_hashes_and_no_addresses(name: str) -> None:
    assert not lock_faults(tree.read(tree.ROOT / name))


def lock_faults(text: str) -> list[str]:
    """Lines that are no comment, no pinned version, no hash; pins without a hash."""
    shape = re.compile(
        r"[\w.-]+==[\w.!+-]+( ; .+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?|\s*#.*|"
    )
    lines = text.split("\n")
    odd = [line for line in lines if not shape.fullmatch(line)]
    pairs = zip(lines, [*lines[1:], ""], strict=True)
    bare = [pin for pin, after in pairs if "==" in pin and "--hash=" not in after]
    return odd + bare


@pytest.mark.parametrize(
    "text",
    [
        "see /" + "home/ann/stowplan",
        "cd /" + "root/x",
        "'/" + "tmp/plan'",
        "https://pypi" + ".org/simple",
        "cp -r .." + "/shared .",
    ],
)
def test_control_places(text: str) -> None:
    assert places("x.md", text)


def test_control_ordinary_paths() -> None:
    assert not places("x.md", "https://example.com/home/x a/work/b ./tmp/x registry.k8s.io/pause:3")
    assert not places(MAY_LOOK_BESIDE, ".." + "/shared/traces")


@pytest.mark.parametrize(
    "text",
    [
        "--index-url https://example.com/simple",
        "numpy==2.0.0",
        "numpy==2.0.0 \\\n    # via x",
        "numpy @ file:///x",
        "numpy>=2 \\\n    --hash=sha256:" + "0" * 64,
    ],
)
def test_control_lock(text: str) -> None:
    assert lock_faults(text)
    assert not lock_faults("# made\nnumpy==2.0.0 ; x < '3' \\\n    --hash=sha256:" + "0" * 64)
