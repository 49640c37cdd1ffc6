"""Check of Host and Origin headers: a server on a loopback address answers local programs only.

A web page can reach such a server too: by a form, or by a name of its own that resolves to
127.0.0.1 (DNS rebinding). Its requests carry its name in Origin or Host.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlsplit

from stowplan.driver.loopback import is_loopback


def foreign_origin(headers: Mapping[str, str]) -> str:
    """The header that names another machine: `Host "evil.example"`; "" if none does."""
    host = headers.get("Host", "")
    if not is_local(host):
        return f'Host "{host[:200]}"'
    origin = headers.get("Origin")
    if origin is not None and not is_local(_authority(origin)):
        return f'Origin "{origin[:200]}"'
    return ""


def is_local(authority: str) -> bool:
    """True for `localhost` and for loopback addresses, with or without a port."""
    try:
        name = urlsplit(f"//{authority}").hostname or ""
    except ValueError:
        return False
    return name.rstrip(".") == "localhost" or is_loopback(name)


def _authority(origin: str) -> str:
    return origin.partition("://")[2]
