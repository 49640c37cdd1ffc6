"""The benchmark cases."""
