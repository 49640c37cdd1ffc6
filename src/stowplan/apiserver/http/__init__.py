"""Requests and responses: query options, body decoding, content negotiation, tables, warnings."""
