"""Spans for OpenTelemetry; imported by nobody unless TRACING is on."""
