"""The embedded API server as pure state: requests in, responses and watch streams out."""
