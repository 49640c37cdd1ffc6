"""Reports of runs as one HTML file: charts, tables, and the scripts that draw them."""
