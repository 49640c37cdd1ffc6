"""Yoda: filter and score by the GPUs that Scv objects report."""
