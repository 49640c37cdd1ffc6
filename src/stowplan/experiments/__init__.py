"""Experiments: many runs, compared with each other or with published figures."""
