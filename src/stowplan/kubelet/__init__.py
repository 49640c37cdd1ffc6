"""Simulated kubelets of hollow nodes: nodes that run no containers.

Each node has a kubelet here unless annotated otherwise: it sends heartbeats, admits or rejects
bound pods, starts and ends containers by the clock instead of running them, and removes deleted
pods. Annotations of a pod control its lifecycle (`pod_lifecycle`).
"""
