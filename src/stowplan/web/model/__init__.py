"""What the page shows, as values: columns and frames, without sockets or clocks."""
