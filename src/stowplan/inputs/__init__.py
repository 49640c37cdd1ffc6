"""Inputs: manifests, dumps, traces, generated workloads, and their validation."""
