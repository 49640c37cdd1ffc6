"""DefaultPreemption: dry runs, victims and candidate nodes."""
