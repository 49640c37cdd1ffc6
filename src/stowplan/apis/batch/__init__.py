"""Kinds of batch/v1: validation, strategies."""
