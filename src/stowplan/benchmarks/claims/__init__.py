"""Benchmark cases with ResourceClaims."""
