"""Events and effects: the closed unions that the scheduler consumes and returns."""
