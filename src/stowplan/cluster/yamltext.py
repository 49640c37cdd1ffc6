"""YAML bodies as JSON has them, with bounds on what a few lines may grow to.

Source: sigs.k8s.io/yaml and its go-yaml, whose words for broken text are used where they are known.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from stowplan.cluster.errors import ApiError, quoted
from stowplan.cluster.schema.parse import DEPTH_MAX, deeper

BYTES_MAX = 256 << 10
"""Reading YAML keeps everybody waiting for some 10 seconds per MB."""
NODES_MAX = 200_000
"""Values in one body, aliases counted as often as they are used."""
_WHOLE_MAX = 10**308
PREFIX = "yaml: unmarshal errors:\n"
TOO_DEEP = "yaml: exceeded max depth of 10000"


class Unreadable(ValueError):
    """A body that is not even a tree with kind and apiVersion; its text says why."""


LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""The parser in C, where the library was built with it: ten times as fast."""


def read_yaml(raw: bytes) -> tuple[Any, list[str]]:
    """The tree of a YAML body, and a text about keys that came twice.

    Raises Unreadable, and ApiError 413 for one that would take seconds to read.
    """
    if len(raw) > BYTES_MAX:
        text = f"Request entity too large: limit is {BYTES_MAX} for YAML, send JSON"
        raise ApiError(413, "RequestEntityTooLarge", text)
    repeated: list[str] = []
    try:
        loader = LOADER(raw)
        node = loader.get_single_node()
        if node is None:
            return None, []
        tree = _Plain().plain(loader.construct_document(node))
        repeated = list(_repeated(node, set()))
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 1
        problem = (error.problem or "").replace(" here", " in this context")
        raise Unreadable(f"yaml: line {line}: {problem}") from None
    except RecursionError:
        raise Unreadable(TOO_DEEP) from None
    except (yaml.YAMLError, UnicodeDecodeError, ValueError) as error:
        raise Unreadable(f"yaml: {str(error).splitlines()[0]}") from None
    if deeper(tree, DEPTH_MAX):
        raise Unreadable(TOO_DEEP)
    told = [PREFIX + "\n".join(f"  {line}" for line in repeated)] if repeated else []
    return tree, told


class _Plain:
    """YAML as JSON has it: keys are texts, and so are times."""

    def __init__(self) -> None:
        self.left = NODES_MAX

    def plain(self, value: Any) -> Any:
        self.left -= 1
        if self.left < 0:
            raise ValueError("document contains excessive aliasing")
        if isinstance(value, dict):
            return {_key(key): self.plain(each) for key, each in value.items()}
        if isinstance(value, list):
            return [self.plain(each) for each in value]
        if value is None or isinstance(value, str | int | float | bool):
            if isinstance(value, int) and abs(value) > _WHOLE_MAX:
                raise ValueError("a number is too large")
            return value
        if hasattr(value, "isoformat"):
            return str(value.isoformat()).replace("+00:00", "Z")
        return str(value)


def _key(key: Any) -> str:
    if isinstance(key, bool):
        return "true" if key else "false"
    return str(key)


def _repeated(node: Any, walked: set[int]) -> Iterator[str]:
    if id(node) in walked:
        return
    walked.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for each in node.value:
            yield from _repeated(each, walked)
    elif isinstance(node, yaml.MappingNode):
        seen = set()
        for key, value in node.value:
            yield from _repeated(value, walked)
            if isinstance(key, yaml.ScalarNode):
                if key.value in seen:
                    line = value.start_mark.line + 1
                    yield f"line {line}: key {quoted(key.value)} already set in map"
                seen.add(key.value)


def warning_lines(text: str) -> list[str]:
    """A strict text as warnings tell it: of YAML each line by itself."""
    if not text.startswith(PREFIX):
        return [text]
    return [line.strip() for line in text.removeprefix(PREFIX).splitlines()]
