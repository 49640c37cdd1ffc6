"""Kueue in front of the scheduler: which jobs of a cluster are admitted, in which flavors."""
