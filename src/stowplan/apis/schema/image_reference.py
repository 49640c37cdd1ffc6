"""Tags of image names.

Source: kubernetes v1.36, pkg/util/parsers; distribution/reference.
"""

from __future__ import annotations

import re

from stowplan.apis.machinery.text_cache import cache_short_texts

_PART = r"[a-zA-Z0-9](?:[a-zA-Z0-9-]*[a-zA-Z0-9])?"
_DOMAIN = rf"(?:{_PART}(?:\.{_PART})*|\[[0-9a-fA-F:]+\])"
_COMPONENT = r"[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*"
_REFERENCE = re.compile(
    rf"(?:{_DOMAIN}(?::[0-9]+)?/)?{_COMPONENT}(?:/{_COMPONENT})*"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?"
    r"(?P<digest>@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?"
)


@cache_short_texts(1 << 12)
def image_tag(image: str) -> str:
    """The tag; `latest` if there is neither tag nor digest; "" for an invalid name."""
    form = _REFERENCE.fullmatch(image)
    if form is None:
        return ""
    if form["tag"]:
        return form["tag"]
    return "" if form["digest"] else "latest"
