"""Runs that look for what only time and trouble bring out: requests that hang, counts that drift, memory that grows."""
