"""Reports on the queues of queue models: the audit of their quotas, and what a job waits for."""
