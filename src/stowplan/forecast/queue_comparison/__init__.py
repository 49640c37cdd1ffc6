"""What another scheduler with queues decided, compared with what a queue model decides."""
