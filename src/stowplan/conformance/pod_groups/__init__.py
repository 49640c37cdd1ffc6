"""Pod group scripts: a whole scheduler beside an API server that the script drives."""
