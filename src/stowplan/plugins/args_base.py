"""Base of the arguments of in-tree plugins."""

from __future__ import annotations

import msgspec


class PluginArgs(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Arguments as a configuration writes them: camelCase, and no unknown fields."""
