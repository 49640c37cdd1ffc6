"""Shared parts of controllers: API access, object index, work queue, event recorder, base class."""
