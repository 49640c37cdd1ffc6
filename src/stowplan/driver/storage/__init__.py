"""Files on disk: the SQLite store, tokens, certificates and kubeconfig files of a local cluster."""
