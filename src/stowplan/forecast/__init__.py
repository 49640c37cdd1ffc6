"""Explanations that need virtual time: after a simulation, after sessions."""
