"""One module for each peer."""
