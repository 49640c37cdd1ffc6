"""Group cycles: all pods of a group are tried on one snapshot."""
