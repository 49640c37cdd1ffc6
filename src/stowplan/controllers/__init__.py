"""Controllers: each brings stored objects closer to their spec.

A controller observes the store's changes, queues keys, and syncs one key at a time against the
current objects; a failed or early sync is repeated later. No state is kept that could not be
rebuilt from the store, except failure counts.
"""
