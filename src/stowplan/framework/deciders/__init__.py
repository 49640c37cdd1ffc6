"""Protocols of what decides: the pod decider, the session decider, kernel terms, extender
reviews."""
