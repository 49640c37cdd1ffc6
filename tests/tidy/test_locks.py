"""What runs Stowplan is a lock of its own, and part of the lock for everything."""

from __future__ import annotations

import re
import tomllib
from typing import Any

from packaging.requirements import Requirement

from tests.tidy import tree

PIN = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)
DEMO = re.compile(r"^(demo|bench): (\S+)", re.MULTILINE)


def pins(name: str) -> set[tuple[str, str]]:
    """Name and version of every pin; a package may have one for each Python."""
    return set(PIN.findall(tree.read(tree.ROOT / name)))


def asked(requirements: list[Any]) -> set[str]:
    """The names of requirements, as locks spell them."""
    named = (Requirement(one).name for one in requirements if isinstance(one, str))
    return {re.sub(r"[-_.]+", "-", name).lower() for name in named}


def project() -> dict[str, Any]:
    return tomllib.loads(tree.read(tree.ROOT / "pyproject.toml"))


def test_the_lock_for_running_has_what_runs_and_nothing_of_the_checks() -> None:
    groups = project()["dependency-groups"]
    locked = {name for name, _ in pins("requirements.lock")}
    assert asked(project()["project"]["dependencies"]) <= locked
    assert asked(groups["install"]) <= locked
    assert asked(groups["dev"] + groups["plots"]) & locked == set()


def test_the_lock_for_everything_pins_the_same_and_the_rest() -> None:
    groups = project()["dependency-groups"]
    everything = pins("requirements-dev.lock")
    assert pins("requirements.lock") <= everything
    assert asked(groups["dev"] + groups["plots"]) <= {name for name, _ in everything}


def test_the_lock_for_the_documentation_pins_the_same_and_is_not_part_of_the_others() -> None:
    documentation = pins("requirements-docs.lock")
    asked_for = asked(project()["dependency-groups"]["docs"])
    assert asked_for <= {name for name, _ in documentation}
    assert asked_for & {name for name, _ in pins("requirements-dev.lock")} == set()
    others = dict(pins("requirements-dev.lock"))
    shared = {(name, version) for name, version in documentation if name in others}
    assert shared <= pins("requirements-dev.lock")


def test_locks_name_no_address() -> None:
    for name in ("requirements.lock", "requirements-dev.lock", "requirements-docs.lock"):
        assert "://" not in tree.read(tree.ROOT / name), name


def test_what_only_runs_does_not_install_the_rest() -> None:
    found = dict(DEMO.findall(tree.read(tree.ROOT / "Makefile")))
    assert found == {"demo": ".venv/.run", "bench": ".venv/.run"}


def test_control_a_package_of_the_checks_would_be_seen() -> None:
    assert asked(["pytest>=8", {"include-group": "install"}, "types-PyYAML"]) == {
        "pytest",
        "types-pyyaml",
    }
    assert PIN.findall("numpy==2.4 ; x \\\n    --hash=sha256:1\n") == [("numpy", "2.4")]
