"""Times of objects: when things are due, and how long pods may run."""
