"""Plugins that go on in a new framework, when the configuration of a profile changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from stowplan.framework.profile import Profile
from stowplan.framework.runtime.registered_plugin import RegisteredPlugin


def kept_plugin(
    name: str, profile: Profile, before: Profile, members: Mapping[str, RegisteredPlugin]
) -> Any:
    """The plugin of the framework before, if it is to go on; None to construct a new one.

    Plugins that reserve or wait for pods may keep state about pods whose binding is in progress, so
    they go on unless their arguments change. before, members: of the framework before. A plugin
    that goes on keeps its handle: `handle.framework` is then the framework before.
    """
    member = members.get(name)
    if member is None or not (member.calls["reserve"] or member.calls["permit"]):
        return None
    is_same = profile.args.get(name) == before.args.get(name)
    is_same &= profile.aliases.get(name) == before.aliases.get(name)
    return member.plugin if is_same else None
