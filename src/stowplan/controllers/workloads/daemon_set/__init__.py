"""DaemonSet controller: one pod on every node that the pod template selects."""
