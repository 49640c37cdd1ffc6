"""Configuration text to trees of dicts and lists; errors become problems.

JSON is parsed as YAML.
"""

from __future__ import annotations

from typing import Any

from stowplan.config.strict_decoder import Problems, child_path, format_value
from stowplan.objects.encoding.yaml_documents import (
    DocumentError,
    DuplicateKey,
    InvalidMergeKey,
    UnprintableCharacter,
    parse_yaml_documents,
)

VALUES_MAX = 1_000_000
"""Maximum number of values, with aliases expanded."""


def documents(text: str | bytes, problems: Problems) -> list[Any]:
    """The non-empty documents of `text`; none when it cannot be parsed."""

    def repeated(key: DuplicateKey) -> None:
        got, hint = f"the key again in line {key.line}", f"first in line {key.first_line}"
        problems.add(_path(key), got, "each key once", hint, invalidates=False)

    try:
        text = text.decode() if isinstance(text, bytes) else text
        # Rejects lone surrogates, which only one of PyYAML's two parsers would.
        text.encode()
        # Integers of any length pass: the decoder that follows reports them with their path.
        found = parse_yaml_documents(
            text, repeated=repeated, values_max=VALUES_MAX, long_numbers=True
        )
        return [document.tree for document in found]
    except UnicodeError as error:
        where = f"character {error.start + 1}" if hasattr(error, "start") else "document"
        problems.add(where, "bytes that are not UTF-8", "text in UTF-8")
    except UnprintableCharacter as error:
        problems.add(f"character {error.position + 1}", error.got, error.wanted)
    except InvalidMergeKey as error:
        problems.add(error.place, f"<<: {format_value(error.value)}", error.wanted)
    except DocumentError as error:
        problems.add(error.place, error.got, error.wanted)
    return []


def _path(key: DuplicateKey) -> str:
    path = ""
    for step in key.path:
        path = f"{path}[{step}]" if isinstance(step, int) else child_path(path, step)
    return path
