"""What the HTTP server tells the app of a request, beside what WSGI names; imports nothing, as both sides need it."""

from __future__ import annotations

# Whether the request was handed to a thread before the server was told to stop; absent under other servers.
ACCEPTED = "jitney.accepted"
