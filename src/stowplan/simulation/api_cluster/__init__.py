"""The embedded cluster (API server, controllers, kubelets) in virtual time, called as functions."""
