"""Cases of shared GPUs (`evaluate --as gpushare`)."""
