"""Arithmetic of LimitRanges and ResourceQuotas, for admission by the API server and of files."""
