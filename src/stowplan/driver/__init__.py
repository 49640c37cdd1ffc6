"""What touches the world on behalf of the pure rooms: threads, sockets, files, the real clock."""
