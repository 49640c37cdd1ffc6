"""Pod security levels: what pods of a namespace may ask for."""
