"""The policy of a namespace: a level and a version for each mode, from its labels.

Source: kubernetes v1.36, pod-security-admission/api/helpers.go.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from stowplan.apis.machinery.errors import Cause, invalid
from stowplan.apis.machinery.strconv import parse_uint

LABEL_PREFIX = "pod-security.kubernetes.io/"
PRIVILEGED, BASELINE, RESTRICTED = LEVELS = ("privileged", "baseline", "restricted")
LATEST = 1 << 30
"""The minor version that is newer than all."""
_VERSION = re.compile(r"v1\.(0|[1-9][0-9]{0,8})")


class LeveledVersion(NamedTuple):
    """A level, and the minor version of Kubernetes whose rules it has."""

    level: str = PRIVILEGED
    minor: int = LATEST

    def __str__(self) -> str:
        return f"{self.level}:{'latest' if self.minor == LATEST else f'v1.{self.minor}'}"

    @property
    def strictness(self) -> int:
        """Greater for a stricter level."""
        return LEVELS.index(self.level)


class SecurityPolicy(NamedTuple):
    """Levels that are enforced, audited and warned of. problems: labels that cannot be read."""

    enforce: LeveledVersion = LeveledVersion()
    audit: LeveledVersion = LeveledVersion()
    warn: LeveledVersion = LeveledVersion()
    problems: tuple[Cause, ...] = ()

    @property
    def is_privileged(self) -> bool:
        """True if no mode asks for anything."""
        return self.enforce.level == self.audit.level == self.warn.level == PRIVILEGED


PERMISSIVE = SecurityPolicy()


def policy_of(labels: Mapping[str, str]) -> SecurityPolicy:
    """The policy that labels of a namespace ask for."""
    if not any(key.startswith(LABEL_PREFIX) for key in labels):
        return PERMISSIVE
    problems: list[Cause] = []
    modes = {}
    for mode in ("enforce", "audit", "warn"):
        # What cannot be read is enforced strictly, and neither noted nor warned of.
        fallback = RESTRICTED if mode == "enforce" else PRIVILEGED
        modes[mode] = _leveled_version(labels, mode, fallback, problems)
    enforce, warn = modes["enforce"], modes["warn"]
    level_key = f"{LABEL_PREFIX}warn"
    is_set = labels.get(f"{LABEL_PREFIX}enforce") in LEVELS
    if level_key not in labels and is_set and enforce.strictness > warn.strictness:
        minor = warn.minor if f"{level_key}-version" in labels else enforce.minor
        warn = LeveledVersion(enforce.level, minor)
    return SecurityPolicy(enforce, modes["audit"], warn, tuple(problems))


def _leveled_version(
    labels: Mapping[str, str], mode: str, fallback: str, problems: list[Cause]
) -> LeveledVersion:
    level_key, version_key = f"{LABEL_PREFIX}{mode}", f"{LABEL_PREFIX}{mode}-version"
    level, minor = labels.get(level_key, PRIVILEGED), LATEST
    if level not in LEVELS:
        text = f"must be one of {', '.join(LEVELS)}"
        problems.append(invalid(f"metadata.labels[{level_key}]", level, text))
        level = fallback
    version = labels.get(version_key, "latest")
    if version != "latest":
        found = _VERSION.fullmatch(version)
        if found is None:
            text = 'must be "latest" or "v1.x"'
            problems.append(invalid(f"metadata.labels[{version_key}]", version, text))
        else:
            minor = parse_uint(found[1])
    return LeveledVersion(level, minor)
