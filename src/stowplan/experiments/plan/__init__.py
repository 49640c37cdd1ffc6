"""The plan of an experiment: its file, its matrix of runs, and the inputs that it names."""
