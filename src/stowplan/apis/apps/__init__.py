"""Kinds of apps/v1."""
