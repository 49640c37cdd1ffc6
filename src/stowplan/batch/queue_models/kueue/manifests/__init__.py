"""Objects of Kueue as they are written, in the versions of its API."""
