"""The controllers: small state machines that bring what is stored closer to what was asked for.

Each is fed the store's changes, keeps a queue of keys, and looks at one key at a time with what
is stored at that moment; a failed or early look comes back later. Nothing is remembered that
could not be found again in the store, except how often a key has failed.
"""
