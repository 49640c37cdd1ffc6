"""Reports on workloads, quota and queues: reasons in Kueue's words, and statuses."""
