"""Scores of the policies of shared GPUs, by node and by column."""
