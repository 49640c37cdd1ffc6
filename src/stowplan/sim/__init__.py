"""Where files are read and time passes: clusters, traces, workloads, replays."""
