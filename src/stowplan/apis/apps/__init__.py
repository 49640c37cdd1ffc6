"""Kinds of apps/v1: validation, strategies."""
