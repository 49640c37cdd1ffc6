"""HTTP server side: server, server loop, status endpoints, extender service."""
