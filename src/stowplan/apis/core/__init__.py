"""Kinds of core/v1: validation, strategies, tables."""
