"""The Open Inference Protocol, described."""
