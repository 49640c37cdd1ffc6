"""Lanes: each decides the pods of its scheduler names; see `framework.deciders.lane`."""
