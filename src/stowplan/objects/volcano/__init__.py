"""Values of Volcano's API groups that others do not have."""
