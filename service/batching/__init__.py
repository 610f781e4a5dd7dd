"""Dynamic batching with plain threads; knows nothing of HTTP, models or settings."""
