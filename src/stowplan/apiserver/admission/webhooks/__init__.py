"""Webhooks: servers that are asked about writes, and may change or refuse them."""
