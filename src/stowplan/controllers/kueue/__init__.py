"""Controllers of Kueue: jobs and pods with a queue, their Workloads, and places in topologies."""
