"""What a session of KAI-Scheduler knows of pods, groups, nodes and queues."""
