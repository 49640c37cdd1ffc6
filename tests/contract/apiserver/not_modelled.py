"""Where the embedded API server does not answer as recorded, and why: the one list of it.

`docs/parity-api.md` is written from this list. An entry that no difference needs is refused by the
tests, so that the list cannot grow old. Keep entries few: the rule is to answer as recorded.
"""

from __future__ import annotations

from typing import NamedTuple

AT_ONCE = "custom kinds are served at once, without a 429 while storage is being prepared"
CLEARED = "recorded after other definitions were deleted, which was not recorded"
DOCUMENTS = (
    "OpenAPI documents say what kubectl needs, in our own words: schemas of all kinds, verbs and"
    " their parameters; so their hashes are others too, and pages that are no resources have none"
)
BUILD = "what was built, and how, is our own"
MANAGED = "managedFields were removed from these recordings"
VENDOR = "the recorded server had a cluster role of its vendor, for /.well-known"
VENDOR_CERTIFICATE = "the recorded server gave pods a certificate of its vendor as well"
VENDOR_MAPS = "the recorded namespace had two config maps with certificates, one of the vendor"
RAW_DATA = (
    "data of a ControllerRevision is compared as values; the original compares its bytes, so that"
    " blanks sent at creation make every later patch one of immutable data"
)
LEFT_BEHIND = "the recorded server had a policy that an earlier conversation had left behind"
OWN_WORDS = "columns of tables are described in our own words"


class NotModelled(NamedTuple):
    """A difference that is known. exchange: its number. place: where findings begin."""

    group: str
    scenario: str
    exchange: int
    place: str
    reason: str


NOT_YET: dict[tuple[str, str], str] = {}
"""Scenarios that rest on what a later issue builds; they are not repeated."""


class Everywhere(NamedTuple):
    """A difference that may be met in any answer. place: what findings match.

    added: only where we have a field that the recording lacks, and not in `strict` groups.
    """

    place: str
    reason: str
    added: bool = False
    strict: tuple[str, ...] = ()


class StandIn(NamedTuple):
    """A request that is sent in another form than recorded, so that what follows it can be
    repeated: the content type it is sent with."""

    group: str
    scenario: str
    exchange: int
    media: str
    reason: str


STAND_INS: tuple[StandIn, ...] = ()

EVERYWHERE = (
    Everywhere(r".*columnDefinitions\[\d+\]\.description", OWN_WORDS),
    Everywhere(r"gitVersion|gitCommit|goVersion|compiler", BUILD),
    Everywhere(r".*metadata\.managedFields", MANAGED, added=True, strict=("apply",)),
)

NOT_MODELLED: tuple[NotModelled, ...] = (
    NotModelled("discovery", "openapi", 4, "paths", DOCUMENTS),
    NotModelled("discovery", "openapi", 5, "paths", DOCUMENTS),
    NotModelled("discovery", "openapi", 5, "components", DOCUMENTS),
    NotModelled("discovery", "openapi", 6, "paths", DOCUMENTS),
    NotModelled("discovery", "openapi", 6, "components", DOCUMENTS),
    NotModelled("discovery", "openapi", 7, "paths", DOCUMENTS),
    NotModelled("discovery", "openapi", 7, "components", DOCUMENTS),
    NotModelled("discovery", "openapi", 8, "paths", DOCUMENTS),
    NotModelled("discovery", "openapi", 8, "components", DOCUMENTS),
    NotModelled("discovery", "openapi", 9, "paths", DOCUMENTS),
    NotModelled("discovery", "openapi", 9, "components", DOCUMENTS),
    NotModelled("discovery", "openapi", 16, "paths", DOCUMENTS),
    NotModelled("discovery", "openapi", 16, "components", DOCUMENTS),
    NotModelled("discovery", "openapi", 17, "paths", DOCUMENTS),
    NotModelled("discovery", "openapi", 17, "components", DOCUMENTS),
    NotModelled("discovery", "openapi", 18, "paths", DOCUMENTS),
    NotModelled("discovery", "openapi", 18, "components", DOCUMENTS),
    NotModelled("discovery", "openapi", 19, "paths", DOCUMENTS),
    NotModelled("discovery", "openapi", 19, "components", DOCUMENTS),
    NotModelled("discovery", "openapi", 20, "paths", DOCUMENTS),
    NotModelled("discovery", "openapi", 20, "components", DOCUMENTS),
    NotModelled("crd", "crd-lifecycle", 28, "paths", DOCUMENTS),
    NotModelled("crd", "crd-lifecycle", 28, "components", DOCUMENTS),
    NotModelled("crd", "crd-lifecycle", 24, "status", AT_ONCE),
    NotModelled("crd", "crd-delete", 11, "items", CLEARED),
    NotModelled("auth", "rbac", 42, "status.nonResourceRules", VENDOR),
    NotModelled(
        "default-admission", "service-account-and-taints", 3, "spec.volumes", VENDOR_CERTIFICATE
    ),
    NotModelled(
        "default-admission", "service-account-and-taints", 12, "spec.volumes", VENDOR_CERTIFICATE
    ),
    NotModelled(
        "default-admission", "service-account-and-taints", 16, "spec.volumes", VENDOR_CERTIFICATE
    ),
    NotModelled("workload-api", "workload-podgroup", 3, "paths", DOCUMENTS),
    NotModelled("workload-api", "workload-podgroup", 3, "components", DOCUMENTS),
    NotModelled("kinds", "daemonset-and-revisions", 12, "status", RAW_DATA),
    NotModelled("kinds", "daemonset-and-revisions", 14, "rows", RAW_DATA),
    NotModelled("kubectl-apply", "41 get validatingadmissionpolicies", 0, "rows", LEFT_BEHIND),
    NotModelled(
        "kubectl-apply", "42 get validatingadmissionpolicybindings", 0, "rows", LEFT_BEHIND
    ),
    NotModelled("kinds", "quota-status", 15, "status.used", VENDOR_MAPS),
)
