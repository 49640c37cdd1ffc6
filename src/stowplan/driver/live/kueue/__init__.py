"""Kueue's controllers on a live cluster: `stowplan run --act`."""
