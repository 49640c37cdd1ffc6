"""When pods start: run times, arrivals, and the replay of a forecast."""
