"""Controllers of Volcano's objects: Jobs, PodGroups of plain pods, and Queues."""
