"""Simulation in virtual time: event queue, trace replay, session runner."""
