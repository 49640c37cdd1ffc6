"""The text of a configuration to trees; what is wrong with it becomes problems.

JSON is read as the YAML that it is.
"""

from __future__ import annotations

from typing import Any

from stowplan.config.strict import Problems, at, shown
from stowplan.objects.documents import Repeated, Unmergeable, Unprintable, Unreadable, of_yaml

VALUES_MAX = 1_000_000
"""What a text may come to with its aliases written out."""


def documents(text: str | bytes, problems: Problems) -> list[Any]:
    """The documents of `text` that hold anything; none when it cannot be read at all."""

    def repeated(key: Repeated) -> None:
        got, hint = f"the key again in line {key.line}", f"first in line {key.first_line}"
        problems.add(_path(key), got, "each key once", hint, spoils=False)

    try:
        text = text.decode() if isinstance(text, bytes) else text
        # Refuses lone surrogates, which only one of PyYAML's two parsers would.
        text.encode()
        # A number of any length is let through: the walk that follows knows its path.
        found = of_yaml(text, repeated=repeated, values_max=VALUES_MAX, long_numbers=True)
        return [document.tree for document in found]
    except UnicodeError as error:
        where = f"character {error.start + 1}" if hasattr(error, "start") else "document"
        problems.add(where, "what is not UTF-8", "text in UTF-8")
    except Unprintable as error:
        problems.add(f"character {error.position + 1}", error.got, error.wanted)
    except Unmergeable as error:
        problems.add(error.place, f"<<: {shown(error.value)}", error.wanted)
    except Unreadable as error:
        problems.add(error.place, error.got, error.wanted)
    return []


def _path(key: Repeated) -> str:
    path = ""
    for step in key.path:
        path = f"{path}[{step}]" if isinstance(step, int) else at(path, step)
    return path
