"""Where machines ask how the service is; imports nothing, as both the HTTP server and the app need it."""

from __future__ import annotations

# What is answered here takes no model and waits for nothing, so a few threads are enough for all who ask.
PROBE_PATHS = frozenset({"/livez", "/healthz", "/metrics", "/v2/health/live", "/v2/health/ready"})

# Asked every few seconds without anybody's doing, a page that is left open included: what people and programs ask for
# would drown in logs, latencies and traces.
BACKGROUND_PATHS = PROBE_PATHS | {"/status.json"}
