"""The server of the page: HTTP, WebSocket, and what it reads of a scheduler."""
