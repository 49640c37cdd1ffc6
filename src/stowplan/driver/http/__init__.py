"""HTTP servers: embedded API server, status endpoints, extender service."""
