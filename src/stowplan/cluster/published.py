"""The pages of a server besides its resources, together."""

from __future__ import annotations

from stowplan.cluster.discovery import Discovery
from stowplan.cluster.health import Health
from stowplan.cluster.openapi import OpenApi
from stowplan.cluster.options import Pages
from stowplan.cluster.swagger import Swagger

ADDRESS = "127.0.0.1:6443"


def default_pages(address: str = ADDRESS) -> tuple[Pages, ...]:
    """Discovery, OpenAPI, version and health. address: where the server says it can be reached."""
    return (Discovery(address), OpenApi(), Swagger(), Health(address))
