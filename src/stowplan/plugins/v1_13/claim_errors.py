"""Texts that the 1.13 rules on volumes share.

Source: Kubernetes v1.13, predicates.go and volume/persistentvolume/scheduler_binder.go.
"""

CLAIM_WITHOUT_NAME = "PersistentVolumeClaim had no name"
