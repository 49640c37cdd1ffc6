"""Results of an experiment: a folder per run, files that gather them, and an index."""
