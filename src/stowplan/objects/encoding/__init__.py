"""Encodings of objects: JSON, YAML, wire forms."""
