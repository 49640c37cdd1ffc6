"""Protocols of the deciders: pod decider, session decider, kernel terms, extender reviews."""
