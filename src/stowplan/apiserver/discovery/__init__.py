"""Non-resource pages: discovery, OpenAPI, version, health, metrics."""
