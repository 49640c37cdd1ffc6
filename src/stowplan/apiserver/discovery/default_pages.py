"""The default non-resource pages of a server."""

from __future__ import annotations

from stowplan.apiserver.discovery.api_groups import DiscoveryPages
from stowplan.apiserver.discovery.health import HealthPages
from stowplan.apiserver.discovery.openapi_v2 import OpenApiV2Page
from stowplan.apiserver.discovery.openapi_v3 import OpenApiV3Pages
from stowplan.apiserver.discovery.operation_pages import OperationPages
from stowplan.apiserver.options import NonResourcePages

DEFAULT_ADDRESS = "127.0.0.1:6443"


def default_pages(address: str = DEFAULT_ADDRESS) -> tuple[NonResourcePages, ...]:
    """Discovery, OpenAPI, metrics, version and health.

    address: advertised host and port of the server.
    """
    return (
        DiscoveryPages(address),
        OpenApiV3Pages(),
        OpenApiV2Page(),
        OperationPages(address),
        HealthPages(address),
    )
