"""The pod-grouper of KAI-Scheduler: the PodGroup that an owner's pods have."""
