"""Commands that take the whole terminal."""
