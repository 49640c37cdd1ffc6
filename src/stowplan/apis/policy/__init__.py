"""Kinds of policy/v1."""
