"""Kinds of batch/v1."""
