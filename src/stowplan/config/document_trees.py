"""The text of a configuration to trees; what is wrong with it becomes problems.

JSON is read as the YAML that it is.
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
"""What a text may come to with its aliases written out."""


def documents(text: str | bytes, problems: Problems) -> list[Any]:
    """The documents of `text` that hold anything; none when it cannot be read at all."""

    def repeated(key: DuplicateKey) -> None:
        got, hint = f"the key again in line {key.line}", f"first in line {key.first_line}"
        problems.add(_path(key), got, "each key once", hint, spoils=False)

    try:
        text = text.decode() if isinstance(text, bytes) else text
        # Refuses lone surrogates, which only one of PyYAML's two parsers would.
        text.encode()
        # A number of any length is let through: the walk that follows knows its path.
        found = parse_yaml_documents(
            text, repeated=repeated, values_max=VALUES_MAX, long_numbers=True
        )
        return [document.tree for document in found]
    except UnicodeError as error:
        where = f"character {error.start + 1}" if hasattr(error, "start") else "document"
        problems.add(where, "what is not UTF-8", "text in UTF-8")
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
