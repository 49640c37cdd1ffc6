"""Results of experiments for other programs: frames and Parquet."""
