"""Python files of users: run as modules, and what they are made of, with the modules they import.

A file may import modules beside it, as a script may. Those are loaded again once one of them has
changed, or another file has modules of the same name beside it: a long-lived process runs many.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from functools import lru_cache
from hashlib import sha256
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import ModuleType
from typing import NamedTuple

from stowplan.framework import ContractError

OWN_PACKAGE = __name__.partition(".")[0]
INSTALLED_FOLDERS = ("site-packages", "dist-packages")


class PythonCode(NamedTuple):
    """What a file imports, directly or not. files: module -> path, of modules that are not
    installed. distributions: installed ones -> version; without the standard library and
    Stowplan."""

    files: Mapping[str, str]
    distributions: Mapping[str, str]


_helpers: dict[str, tuple[str, str]] = {}
"""Module -> its file and SHA-256, of modules that files have imported in this process."""


def run_file(path: str) -> ModuleType:
    """Run a Python file and return its module; raises ContractError if that fails."""
    name = "stowplan_plugin_" + "".join(c if c.isalnum() else "_" for c in path)
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ContractError(f"{path}: not a Python file: expected a name that ends in .py")
    module = importlib.util.module_from_spec(spec)
    beside = _folder_of(str(path))
    _forget_helpers(beside)
    known = set(sys.modules)
    sys.modules[name] = module
    sys.path.insert(0, beside)
    # Compiled files are recognised by size and second: not enough for one that was just edited.
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    # A user's file may raise anything; the error names the line.
    except (Exception, SystemExit) as failure:
        del sys.modules[name]
        where = f"{path}{_line_in(spec.origin or path, failure)}"
        raise ContractError(f"{where}: {_error_text(failure)}") from failure
    finally:
        sys.dont_write_bytecode = writes
        # The file may have taken it out itself.
        if beside in sys.path:
            sys.path.remove(beside)
        _remember_helpers(known | {name})
    return module


def _forget_helpers(beside: str) -> None:
    """Unload the helpers of earlier files if one has changed, or is not that of this folder."""
    for name, (file, digest) in _helpers.items():
        spec = PathFinder.find_spec(name, [beside]) if "." not in name else None
        is_other = spec is not None and _file_of(spec) not in ("", file)
        if is_other or _digest(file) != digest:
            break
    else:
        return
    # All of them: they may have imported each other.
    for name in _helpers:
        sys.modules.pop(name, None)
    _helpers.clear()
    importlib.invalidate_caches()


def _remember_helpers(known: set[str]) -> None:
    for name in [name for name in sys.modules if name not in known]:
        file = _file_of(getattr(sys.modules[name], "__spec__", None))
        if file and is_own_code(file):
            _helpers[name] = (file, _digest(file))


def _digest(file: str) -> str:
    try:
        return sha256(read_source(file)).hexdigest()
    except OSError:
        return ""


def read_source(file: str) -> bytes:
    """The content of a module's file; raises OSError."""
    return SourceFileLoader("", file).get_data(file)


def _line_in(path: str, failure: BaseException) -> str:
    if isinstance(failure, SyntaxError):
        return f":{failure.lineno}"
    lines = [f.lineno for f in traceback.extract_tb(failure.__traceback__) if f.filename == path]
    return f":{lines[-1]}" if lines else ""


def _error_text(failure: BaseException) -> str:
    if isinstance(failure, OSError):
        return f"cannot read the file: {failure.strerror}"
    if isinstance(failure, ContractError):
        return str(failure)
    text = failure.msg if isinstance(failure, SyntaxError) else str(failure)
    return f"{type(failure).__name__}: {text}"


# What a file imports.


def code_of(path: str, package: str = "") -> PythonCode:
    """What a Python file imports, by its import statements; imports by other means are not seen.

    The file should have been run. package: of the file's module, for relative imports; modules of
    its top-level package count as not installed. Raises ContractError for a file that cannot be
    read.
    """
    beside = _folder_of(path)
    own = package.partition(".")[0]
    files: dict[str, str] = {}
    installed: set[str] = set()
    waiting = [(path, package)]
    while waiting:
        file, inside = waiting.pop()
        for name in _imported_names(file, inside):
            top = name.partition(".")[0]
            if name in files or top == OWN_PACKAGE or top in sys.stdlib_module_names:
                continue
            spec = _spec_of(name, beside)
            found = _file_of(spec)
            if spec is None or not found or found == path:
                continue
            if top != own and not is_own_code(found):
                installed.add(top)
                continue
            files[name] = found
            if found.endswith(".py"):
                is_package = spec.submodule_search_locations is not None
                waiting.append((found, name if is_package else name.rpartition(".")[0]))
    return PythonCode(dict(sorted(files.items())), _versions_of(installed))


def is_own_code(file: str) -> bool:
    """True for a file of neither the standard library, nor an installed distribution, nor
    Stowplan."""
    if any(f"/{folder}/" in file for folder in INSTALLED_FOLDERS):
        return False
    return not file.startswith(_foreign_roots())


@lru_cache(1)
def _foreign_roots() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    own = _folder_of(_folder_of(__file__))
    return (f"{paths['stdlib']}/", f"{paths['platstdlib']}/", f"{own}/")


def _folder_of(file: str) -> str:
    return file.rpartition("/")[0] or "."


def _imported_names(file: str, package: str) -> Iterator[str]:
    """Modules that a file names in import statements, with their packages, anywhere in it."""
    try:
        tree = ast.parse(read_source(file), file)
    except (OSError, SyntaxError, ValueError) as problem:
        raise ContractError(f"{file}: {_error_text(problem)}") from None
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_packages(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parts = package.split(".")
                above = parts[: len(parts) - node.level + 1]
                base = ".".join((*above, base) if base else above)
            if base:
                yield from _with_packages(base)
                yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")


def _with_packages(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[:n]) for n in range(1, len(parts) + 1))


def _spec_of(name: str, beside: str) -> ModuleSpec | None:
    """Of the loaded module, else of the one that would be loaded; nothing is run."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        found: ModuleSpec | None = getattr(loaded, "__spec__", None)
        return found
    parent, _, _ = name.rpartition(".")
    if not parent:
        return PathFinder.find_spec(name, [beside, *sys.path])
    above = _spec_of(parent, beside)
    folders = None if above is None else above.submodule_search_locations
    return None if folders is None else PathFinder.find_spec(name, list(folders))


def _file_of(spec: ModuleSpec | None) -> str:
    """The file of a module, "" if it has none."""
    if spec is None or not spec.has_location or not spec.origin:
        return ""
    return spec.origin


def _versions_of(modules: set[str]) -> dict[str, str]:
    """Version by distribution of top-level modules."""
    if not modules:
        return {}
    # Imported here: only files with imports need it.
    from importlib.metadata import packages_distributions, version

    known = packages_distributions()
    names = {name for module in modules for name in known.get(module, ())}
    return {name: version(name) for name in sorted(names)}
