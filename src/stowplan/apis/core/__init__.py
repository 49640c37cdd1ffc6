"""Kinds of core/v1."""
