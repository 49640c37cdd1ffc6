"""Why devices do not serve claims, for people."""
