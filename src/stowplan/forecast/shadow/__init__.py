"""What another scheduler with queues decided in a cluster, beside what a queue model decides."""
