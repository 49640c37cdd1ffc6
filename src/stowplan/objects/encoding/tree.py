"""Tree: a JSON or YAML object that has been parsed and not typed."""

from typing import Any

Tree = dict[str, Any]
