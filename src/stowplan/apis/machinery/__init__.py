"""What all API kinds share: resources and strategies, metadata, names, selectors, errors,
timestamps, stored form."""
