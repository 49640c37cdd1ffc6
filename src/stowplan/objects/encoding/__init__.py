"""Encodings of objects: JSON, YAML, durations, DataFrames."""
