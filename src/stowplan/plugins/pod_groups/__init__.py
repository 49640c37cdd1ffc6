"""Plugins for groups of pods: gangs, and placement in one topology domain."""
