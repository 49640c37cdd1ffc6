"""`stowplan top`: the page's data in a terminal."""
