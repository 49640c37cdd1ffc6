"""Names of fields as CEL identifiers: `a-b` is `a__dash__b`.

Source: apiserver v1.36, pkg/cel/escaping.go.
"""

from __future__ import annotations

import re
from functools import lru_cache

from stowplan.cel.tokens import KEYWORDS, RESERVED

_WORDS = {"__": "underscores", ".": "dot", "-": "dash", "/": "slash"}
_SPECIAL = re.compile(r"__|[-./]")
_ALLOWED = re.compile(r"[A-Za-z_./-][A-Za-z0-9_./-]*")


@lru_cache(maxsize=4096)
def escaped_name(name: str) -> str:
    """The identifier of a field; "" for a name that has none."""
    if name in KEYWORDS or name in RESERVED:
        return f"__{name}__"
    if _ALLOWED.fullmatch(name) is None:
        return ""
    return _SPECIAL.sub(lambda found: f"__{_WORDS[found.group()]}__", name)
