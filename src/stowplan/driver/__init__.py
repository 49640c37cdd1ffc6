"""Driver: asyncio, threads, sockets, files and the real clock around the pure packages."""
