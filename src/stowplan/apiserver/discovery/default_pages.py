"""The default non-resource pages of a server."""

from __future__ import annotations

from stowplan.apiserver.discovery.api_groups import DiscoveryPages
from stowplan.apiserver.discovery.health import HealthPages
from stowplan.apiserver.discovery.openapi_v2 import OpenApiV2Page
from stowplan.apiserver.discovery.openapi_v3 import FieldTexts, OpenApiV3Pages, no_texts
from stowplan.apiserver.discovery.operation_pages import OperationPages
from stowplan.apiserver.options import NonResourcePages

DEFAULT_ADDRESS = "127.0.0.1:6443"


def default_pages(
    address: str = DEFAULT_ADDRESS, texts: FieldTexts = no_texts
) -> tuple[NonResourcePages, ...]:
    """Discovery, OpenAPI, metrics, version and health.

    address: advertised host and port of the server. texts: descriptions of fields that are used
    where our own would be.
    """
    return (
        DiscoveryPages(address),
        OpenApiV3Pages(texts),
        OpenApiV2Page(texts),
        OperationPages(address),
        HealthPages(address),
    )
