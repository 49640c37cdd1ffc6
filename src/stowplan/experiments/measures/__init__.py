"""Measures of simulations: one table, own functions, measures over time."""
