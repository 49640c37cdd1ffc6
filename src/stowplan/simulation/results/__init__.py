"""Results of a simulation: summary, time series, pod history, files."""
