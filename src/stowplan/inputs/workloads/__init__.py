"""Workloads: the pods, volume claims and priorities that controllers and admission create."""
