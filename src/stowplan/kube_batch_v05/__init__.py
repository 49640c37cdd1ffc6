"""kube-batch v0.5 with its defects: an oracle, chosen as a whole by `--compat kube-batch-0.5`.

It keeps its own state of jobs, tasks, nodes and queues, in plain Python, and shares no code with
the sessions of `stowplan.batch`, which mend the defects. docs/parity.md lists what differs.

Source: kube-batch v0.5.
"""
