"""Kinds of policy/v1: validation, strategies."""
