"""Commands that run experiments and show their results."""
