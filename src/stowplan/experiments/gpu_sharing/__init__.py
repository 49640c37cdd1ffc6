"""The published experiment on GPU sharing: OpenB workloads that fill a cluster, by six policies."""
