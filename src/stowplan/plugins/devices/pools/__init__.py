"""Devices of a cluster: pools of slices, taints of rules, what is allocated."""
