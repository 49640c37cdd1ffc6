"""Changes: the smallest ones that would let a pending pod run."""
