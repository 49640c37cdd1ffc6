"""No dead code: what only tests use, or nothing, is removed.

A definition of a module is in use when its own module uses it outside of it, or when another file
imports it. Methods are found by name: a call of any `x.name` keeps every method `name`. Names in
strings count, as tables of methods and lazy imports are written so. Files that may use code: src,
bench, the code of docs, pyproject.toml.
"""

import ast
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import PurePath

import msgspec

from tests.tidy import tree
from tests.tidy.test_structure import module_name

# Modules whose `__all__` is public: what they export may be for others only.
PUBLIC = {"stowplan", "stowplan.framework", "stowplan.testing"}
# Tables of old names: a name in them is not in use because of that.
OLD_NAMES = {"_OLD_NAMES", "_OLD_MODULES"}
# These decorators do not register a function anywhere.
PLAIN_DECORATORS = {
    "abstractmethod",
    "asynccontextmanager",
    "cache",
    "cached_property",
    "classmethod",
    "contextmanager",
    "dataclass",
    "final",
    "lru_cache",
    "njit",
    "overload",
    "override",
    "property",
    "runtime_checkable",
    "staticmethod",
    "total_ordering",
}
# "module:name" or "module:Class.name" -> why it stays though nothing names it.
ALLOWED = {
    "stowplan.columns.engine.kernels:ARRAYS": "a digest; changing it makes Numba compile anew",
    "stowplan.columns.engine.card_kernels:ARRAYS": "as above",
    "stowplan.columns.engine.card_kernels:CARD_ARRAYS": "as above",
    "stowplan.columns.engine.preemption_kernels:PREEMPTION_ARRAYS": "as above",
    "stowplan.cycle.explanation:Explanation.fits_somewhere": "result of `stowplan.explain`",
    "stowplan.driver.live.background_scheduler:background_scheduler": "entry point for programs",
    "stowplan.plugins.topology_spread.pod_topology_spread:CriticalPaths.by_value": "as by_pair",
    "stowplan.testing.session_invariants:check_session": "for tests of session plugins",
}
# Protocols of the plugin contract, which document and type plugins.
CONTRACT = ("stowplan.framework.plugin:", "stowplan.framework.deciders.node_plugins:")
# Methods that a library calls by name.
CALLED_BY_LIBRARIES = {
    "_repr_html_": "Jupyter",
    "connection_lost": "asyncio.Protocol",
    "data_received": "asyncio.Protocol",
    "eof_received": "asyncio.Protocol",
    "resume_writing": "asyncio.Protocol",
    "on_body": "httptools",
    "on_header": "httptools",
    "on_headers_complete": "httptools",
    "on_message_begin": "httptools",
    "on_message_complete": "httptools",
    "on_url": "httptools",
    "action_back": "textual.app.App",
    "action_enter_text": "textual.app.App",
    "action_keys": "textual.app.App",
    "action_pause": "textual.app.App",
    "action_resource": "textual.app.App",
    "action_sort": "textual.app.App",
    "on_data_table_row_selected": "textual.app.App",
    "on_input_changed": "textual.app.App",
    "on_input_submitted": "textual.app.App",
    "on_mount": "textual.app.App",
    "on_unmount": "textual.app.App",
    "emit": "logging.Handler",
    "format_commands": "click.Group",
    "create_module": "importlib",
    "format_epilog": "click.Command",
    "process_value": "click.Option",
    "resolve_command": "click.Group",
    "get_command": "click.Group",
    "list_commands": "click.Group",
}
# Nodes that name something.
NAMING = (ast.Name, ast.Attribute, ast.ImportFrom, ast.Import, ast.JoinedStr, ast.Constant)
WORD = re.compile(r"[A-Za-z_]\w*")


class Definition(msgspec.Struct, frozen=True):
    """A definition and the lines that it takes; owner: its class, "" at the top of a module."""

    module: str
    owner: str
    name: str
    first: int
    last: int

    @property
    def title(self) -> str:
        return f"{self.module}:{self.owner}{'.' if self.owner else ''}{self.name}"


def definitions(module: str, text: str) -> Iterator[Definition]:
    """Functions, classes and constants of a module, and methods of its classes."""
    for node in _module(text).body:
        for name in _names(node):
            yield Definition(module, "", name, *_lines(node))
        if isinstance(node, ast.ClassDef):
            for inner in node.body:
                if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    for name in _names(inner):
                        yield Definition(module, node.name, name, *_lines(inner))


def _names(node: ast.stmt) -> list[str]:
    names: list[str] = []
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        called = [d.func if isinstance(d, ast.Call) else d for d in node.decorator_list]
        plain = {ast.unparse(one).rpartition(".")[2] for one in called} <= PLAIN_DECORATORS
        setter = any(isinstance(d, ast.Attribute) and d.attr == "setter" for d in called)
        names = [node.name] if plain and not setter else []
    elif isinstance(node, ast.Assign):
        names = [target.id for target in node.targets if isinstance(target, ast.Name)]
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        names = [node.target.id]
    return [name for name in names if not name.startswith("__") and name not in OLD_NAMES]


def _lines(node: ast.stmt) -> tuple[int, int]:
    marks = getattr(node, "decorator_list", [])
    return min([node.lineno, *(mark.lineno for mark in marks)]), node.end_lineno or node.lineno


class Uses(msgspec.Struct):
    """What a file names. names: lines of plain names; attributes: of `x.name`; strings: words of
    strings that are identifiers or paths; imports: module -> names taken from it."""

    names: dict[str, list[int]] = {}
    attributes: dict[str, list[int]] = {}
    strings: dict[str, list[int]] = {}
    imports: dict[str, set[str]] = {}
    # Constant beginnings of f-strings, as of f"_on_{verb}" in a getattr.
    prefixes: set[str] = set()


def uses(text: str) -> Uses:
    """What a text names and where."""
    found = Uses()
    for node in _without_old_names(text):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found.names.setdefault(node.id, []).append(node.lineno)
        elif isinstance(node, ast.Attribute):
            found.attributes.setdefault(node.attr, []).append(node.lineno)
        elif isinstance(node, ast.ImportFrom) and node.module:
            taken = {one.name for one in node.names}
            found.imports.setdefault(node.module, set()).update(taken)
        elif isinstance(node, ast.Import):
            for one in node.names:
                found.imports.setdefault(one.name, set())
        elif isinstance(node, ast.JoinedStr) and isinstance(node.values[0], ast.Constant):
            found.prefixes.add(str(node.values[0].value))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            is_code = node.value.startswith("from ")
            if is_code or re.fullmatch(r"[\w.:\[\]|]+", node.value):
                for word in WORD.findall(node.value):
                    found.strings.setdefault(word, []).append(node.lineno)
    return found


def _module(text: str) -> ast.Module:
    return next(tree.nodes(text, ast.Module))


def _without_old_names(text: str) -> Iterator[ast.AST]:
    left_out = {
        id(inner)
        for node in _module(text).body
        if isinstance(node, ast.Assign) and _name_of(node.targets[0]) in OLD_NAMES
        for inner in ast.walk(node)
    }
    return (node for node in tree.nodes(text, *NAMING) if id(node) not in left_out)


def _name_of(target: ast.expr) -> str:
    return target.id if isinstance(target, ast.Name) else ""


def exported(text: str) -> set[str]:
    """The names of `__all__`."""
    for node in _module(text).body:
        if isinstance(node, ast.Assign) and _name_of(node.targets[0]) == "__all__":
            return set(ast.literal_eval(node.value))
    return set()


def dead(modules: Mapping[str, str], others: Mapping[str, str], words: set[str]) -> list[str]:
    """Titles of definitions in `modules` that nothing names.

    modules, others: module or path -> source; only definitions of `modules` are looked at. words:
    names in text that is no Python.
    """
    used = {name: uses(text) for name, text in {**modules, **others}.items()}
    attributes = Counter(name for one in used.values() for name in one.attributes)
    strings = Counter(name for one in used.values() for name in one.strings)
    public = {name for module in PUBLIC & modules.keys() for name in exported(modules[module])}
    users = Users(used)
    found = []
    for module, text in modules.items():
        for one in definitions(module, text):
            if one.name in words or (not one.owner and one.name in public):
                continue
            if _is_used_at_home(one, used[module]):
                continue
            if one.owner and (
                _elsewhere(attributes, used[module].attributes, one.name)
                or _elsewhere(strings, used[module].strings, one.name)
            ):
                continue
            if not one.owner and users.has(one):
                continue
            found.append(one.title)
    return found


def _is_used_at_home(one: Definition, used: Uses) -> bool:
    """True when the module names it outside of the definition itself."""
    kinds = [used.attributes, used.strings] if one.owner else [used.names, used.strings]
    lines = [line for kind in kinds for line in kind.get(one.name, ())]
    if any(not one.first <= line <= one.last for line in lines):
        return True
    begins = one.name[: one.name.find("_", 1) + 1]
    return len(begins) > 1 and begins in used.prefixes


def _elsewhere(counts: Counter[str], at_home: Mapping[str, list[int]], name: str) -> bool:
    return counts[name] - (name in at_home) > 0


class Users:
    """Files by what they import, name in strings, and begin names of modules with."""

    def __init__(self, used: Mapping[str, Uses]) -> None:
        self._importing: dict[str, list[Uses]] = {}
        self._in_strings: dict[str, list[Uses]] = {}
        self._by_prefix: dict[str, list[Uses]] = {}
        self._home = used
        for one in used.values():
            for table, names in (
                (self._importing, one.imports),
                (self._in_strings, one.strings),
                (self._by_prefix, one.prefixes),
            ):
                for name in names:
                    table.setdefault(name, []).append(one)

    def has(self, one: Definition) -> bool:
        """True when another file than its own uses a definition."""
        package, _, leaf = one.module.rpartition(".")
        home = self._home[one.module]
        for other in self._importing.get(one.module, ()):
            is_named = one.name in other.imports[one.module] or one.name in other.attributes
            if other is not home and is_named:
                return True
        for other in self._importing.get(package, ()):
            is_named = leaf in other.imports[package] and one.name in other.attributes
            if other is not home and is_named:
                return True
        for other in self._by_prefix.get(f"{package}.", ()):
            if other is not home and one.name in other.attributes:
                return True
        return any(
            other is not home and leaf in other.strings
            for other in self._in_strings.get(one.name, ())
        )


def _words_of_documents() -> set[str]:
    """Names in the code of pages, and in pyproject.toml."""
    found = set(WORD.findall(tree.read(tree.ROOT / "pyproject.toml")))
    for page in tree.markdown():
        for code in re.findall(r"```.*?```|`[^`\n]+`", tree.read(page), re.DOTALL):
            found.update(WORD.findall(code))
    return found


def test_nothing_is_dead() -> None:
    root = tree.ROOT
    modules = {
        module_name(PurePath(path.relative_to(root))): tree.read(path)
        for path in tree.python("src")
    }
    others = {tree.name(path): tree.read(path) for path in tree.python("bench")}
    found = dead(modules, others, _words_of_documents())
    problems = [
        f"{title}: nothing but tests uses it"
        for title in found
        if title not in ALLOWED
        and title.rpartition(".")[2] not in CALLED_BY_LIBRARIES
        and not title.startswith(CONTRACT)
    ]
    assert not problems, tree.report(sorted(problems))
    assert not (gone := ALLOWED.keys() - set(found)), f"allowed for nothing: {sorted(gone)}"


PLANTED = {
    "stowplan.a": (
        "from stowplan.b import used\n"
        "class Kept:\n"
        "    def run(self): return used()\n"
        "    def forgotten(self): return self.forgotten()\n"
        "TABLE = [Kept().run]\n"
    ),
    "stowplan.b": "def used(): ...\n\ndef unused(): return unused()\n",
    "stowplan": "from stowplan.a import TABLE\n__all__ = ['TABLE']\n",
}


def test_control_planted() -> None:
    assert dead(PLANTED, {}, set()) == ["stowplan.a:Kept.forgotten", "stowplan.b:unused"]


def test_control_what_keeps_a_name() -> None:
    by_bench = {"bench/x.py": "from stowplan.b import unused\nx.forgotten()\n"}
    assert dead(PLANTED, by_bench, set()) == []
    assert dead(PLANTED, {}, {"unused", "forgotten"}) == []
    in_a_table = {"bench/x.py": "TABLE = {'unused': 'stowplan.b', 'forgotten': 1}\n"}
    assert dead(PLANTED, in_a_table, set()) == []
    by_prefix = {"stowplan.b": "def _on_add(): ...\n\ngetattr(x, f'_on_{verb}')\n"}
    assert dead(by_prefix, {}, set()) == []
    by_old_name = {"bench/x.py": "_OLD_NAMES = {'x': 'stowplan.b:unused'}\n"}
    assert "stowplan.b:unused" in dead(PLANTED, by_old_name, set())
