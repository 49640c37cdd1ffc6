"""Commands that read recordings."""
