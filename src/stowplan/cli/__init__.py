"""The command line: it reads arguments and prints; it decides nothing."""
