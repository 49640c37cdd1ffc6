"""The wheel and the sdist, built and used as a stranger would: in an empty environment.

Nothing is fetched: the builds use the backend of this environment, and the empty environment is
lent, by links, exactly the distributions that the wheel declares.
"""

import email
import os
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]

# One worker builds once and runs all of it.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("dist")]


def run(*command: str | Path, cwd: Path) -> str:
    """Standard output of `command`, run without this test's own paths and network settings."""
    env = {key: text for key, text in os.environ.items() if not key.startswith(("PIP_", "PYTHON"))}
    env["PIP_CONFIG_FILE"] = os.devnull
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def build(source: Path, out: Path, *kinds: str) -> None:
    """Build distributions of `source` into `out`, with the backend that is installed here."""
    command = [sys.executable, "-m", "build", "--no-isolation", *kinds, "--outdir", str(out)]
    run(*command, str(source), cwd=out.parent)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel") / "dist"
    build(ROOT, out, "--wheel")
    (found,) = out.iterdir()
    return found


@pytest.fixture(scope="module")
def unpacked_sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sdist")
    build(ROOT, folder / "dist", "--sdist")
    (found,) = (folder / "dist").iterdir()
    # As a program: the library call needs a filter since 3.14 and lacks it before 3.11.4.
    run(sys.executable, "-m", "tarfile", "-e", str(found), str(folder), cwd=folder)
    return folder / found.name.removesuffix(".tar.gz")


@pytest.fixture(scope="module")
def empty_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of programs of an environment with the wheel and what it declares."""
    folder = tmp_path_factory.mktemp("empty environment")
    venv.create(folder, with_pip=False, symlinks=True)
    programs = folder / "bin"
    pip = [sys.executable, "-m", "pip", "--python", str(programs / "python")]
    run(*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel), cwd=folder)
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in closure(requirements(wheel)):
        for place in top_level(distribution(name)):
            (packages / place.name).symlink_to(place)
    return programs


def requirements(wheel: Path) -> list[str]:
    """Names that the wheel requires without any extra."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = email.message_from_bytes(archive.read(name))
    return list(wanted(metadata.get_all("Requires-Dist", [])))


def wanted(lines: list[str]) -> Iterator[str]:
    """Names of the requirements in `lines` that apply here without any extra."""
    for requirement in map(Requirement, lines):
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            yield canonicalize_name(requirement.name)


def closure(names: list[str]) -> set[str]:
    """`names` and all that they require in turn."""
    found: set[str] = set()
    while names:
        name = names.pop()
        if name not in found:
            found.add(name)
            names.extend(wanted(distribution(name).requires or []))
    return found


def top_level(installed: Distribution) -> set[Path]:
    """What the distribution put directly into its site-packages."""
    home = Path(str(installed.locate_file("")))
    parts = {file.parts[0] for file in installed.files or []}
    return {home / part for part in parts - {"..", "__pycache__"}}


def wheel_names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_the_wheel_ships_the_package_and_nothing_else(wheel: Path) -> None:
    names = wheel_names(wheel)
    source = ROOT / "src"
    modules = {path.relative_to(source).as_posix() for path in source.glob("stowplan/**/*.py")}
    assert modules
    assert modules <= names
    files = (path for path in source.glob("stowplan/web/static/**/*") if path.is_file())
    static = {path.relative_to(source).as_posix() for path in files}
    assert {"stowplan/web/static/report.js", "stowplan/web/static/page.html"} <= static
    assert static <= names
    assert "stowplan/py.typed" in names
    assert any(name.endswith("/licenses/LICENSE") for name in names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"stowplan"}


def test_the_program_runs_in_an_empty_environment(empty_environment: Path, tmp_path: Path) -> None:
    text = run(empty_environment / "stowplan", "--help", cwd=tmp_path)
    assert "simulate" in text


def test_a_report_is_written_in_an_empty_environment(
    empty_environment: Path, tmp_path: Path
) -> None:
    size = ("--node-count", "2", "--pod-count", "3")
    run(empty_environment / "stowplan", "simulate", *size, "--report", "a.html", cwd=tmp_path)
    assert "<script" in (tmp_path / "a.html").read_text()


def test_imports_in_an_empty_environment(empty_environment: Path, tmp_path: Path) -> None:
    # `testing` too: builders and check_plugin must not need the extra.
    lines = [
        "import importlib.metadata, stowplan, stowplan.framework, stowplan.testing",
        "assert stowplan.__version__ == importlib.metadata.version('stowplan')",
        "print(stowplan.__file__)",
    ]
    place = run(empty_environment / "python", "-c", "\n".join(lines), cwd=tmp_path)
    assert Path(place.strip()).is_relative_to(empty_environment.parent)


def test_control_nothing_undeclared_is_borrowed(empty_environment: Path, tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="No module named 'hypothesis'"):
        run(empty_environment / "python", "-c", "import hypothesis", cwd=tmp_path)


def test_the_sdist_builds_the_same_wheel(wheel: Path, unpacked_sdist: Path, tmp_path: Path) -> None:
    build(unpacked_sdist, tmp_path / "dist", "--wheel")
    (again,) = (tmp_path / "dist").iterdir()
    assert again.name == wheel.name
    assert wheel_names(again) == wheel_names(wheel)


@pytest.mark.parametrize(
    "name",
    [
        ".importlinter",
        "CHANGELOG.md",
        "LICENSE",
        "Makefile",
        "README.md",
        "pyproject.toml",
        "requirements-dev.lock",
        "requirements.lock",
        "src/stowplan/py.typed",
        "tests/conftest.py",
    ],
)
def test_the_sdist_has_what_its_targets_need(unpacked_sdist: Path, name: str) -> None:
    assert (unpacked_sdist / name).is_file()
