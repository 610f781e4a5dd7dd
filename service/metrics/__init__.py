"""What Prometheus can read: one module for HTTP requests, one for batches and models."""
