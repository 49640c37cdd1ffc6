"""Descriptions of fields from the official Python client, where it is installed.

Its models carry the texts of Kubernetes' API reference. They are read from the files of the
package, as importing its models takes seconds.
"""

from __future__ import annotations

import ast
import importlib.util
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path

_PACKAGE = "kubernetes"
_ABOUT = re.compile(r'^class \w+\(.*\):\n    """\n    (.+?)\n\n', re.MULTILINE)
_FIELD = re.compile(r'^    (\w+): .*?description=("(?:[^"\\]|\\.)*")\)', re.MULTILINE)
_ALIAS = re.compile(r'^    (\w+): .*?serialization_alias="([^"]+)"', re.MULTILINE)
_GETTER = re.compile(
    r"^    def (?P<field>\w+)\(self\):\n"
    r'        """Gets the .*\n\n(?P<text>(?:        [^:\n].*\n)+)\n        :return',
    re.MULTILINE,
)
_NAME = re.compile(r"^        '(\w+)': '([^']+)',?$", re.MULTILINE)
_LINTER = "  # noqa: E501"


def client_field_texts(struct: str) -> Mapping[str, str]:
    """Field -> description of a type, "" for the type itself; empty where there are none.

    struct: as OpenAPI names it: io.k8s.api.core.v1.Taint.
    """
    folder = _models_folder()
    parts = struct.split(".")
    if folder is None or len(parts) < 3:
        return {}
    group, version, kind = parts[-3:]
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", kind).lower()
    for name in (f"{group}_{version}_{snake}", f"{version}_{snake}"):
        path = folder / f"{name}.py"
        if path.is_file():
            return model_texts(path.read_text(encoding="utf-8"))
    return {}


def model_texts(source: str) -> dict[str, str]:
    """Field -> description in the source of a model, of client 37 or of one before it."""
    found = {name: str(ast.literal_eval(text)) for name, text in _FIELD.findall(source)}
    if found:
        names = dict(_ALIAS.findall(source))
        about = _ABOUT.search(source)
        if about is not None:
            found[""] = about[1].replace('\\"', '"')
        return {names.get(name, name): text for name, text in found.items()}
    names = dict(_NAME.findall(source.partition("attribute_map = {")[2].partition("}")[0]))
    return {
        names.get(str(match["field"]), str(match["field"])): " ".join(
            line.strip().removesuffix(_LINTER).rstrip() for line in match["text"].splitlines()
        )
        for match in _GETTER.finditer(source)
    }


@cache
def _models_folder() -> Path | None:
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        return None
    folder = Path(spec.origin).parent / "client" / "models"
    return folder if folder.is_dir() else None
