"""Key of a pod's spec for caches: pods of one template have equal keys.

Admission gives each pod a volume with a name of its own for the token of its service account, which
would make all specs different.
"""

from __future__ import annotations

import re

from stowplan.apis.machinery.stored_form import encode
from stowplan.objects.encoding.tree import Tree

TOKEN_VOLUME_PREFIX = "kube-api-access-"
_GENERATED = re.compile(f"{TOKEN_VOLUME_PREFIX}[a-z0-9]{{5}}")
# No name is encoded as a number.
_STAND_IN = b"0"


def generated_volume(spec: Tree) -> str:
    """The name that admission gave to the volume of the token; "" if there is none."""
    volumes = spec.get("volumes")
    if volumes and "projected" in volumes[-1]:
        name: str = volumes[-1]["name"]
        if _GENERATED.fullmatch(name):
            return name
    return ""


def spec_key(spec: Tree) -> bytes:
    """The encoded spec, in which the name of the token's volume is replaced."""
    key = encode(spec)
    name = generated_volume(spec)
    return key.replace(b'"%b"' % name.encode(), _STAND_IN) if name else key
