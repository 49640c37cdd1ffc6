"""Commands that bring clusters of other schedulers in."""
