"""The rules of the built-in kinds: what a write may set, what is valid, what tables show."""
