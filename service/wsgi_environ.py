"""What the HTTP server tells the app of a request, beside what WSGI names; imports nothing, as both sides need it."""

from __future__ import annotations

# Whether the request was handed to a thread before the server was told to stop; absent under other servers.
ACCEPTED = "jitney.accepted"

# When the request came, `time.monotonic()`: its deadline runs from then, and not from when a thread took it.
ARRIVED_AT = "jitney.arrived_at"

# How many rows and requests wait, for a request that has a thread only to be refused, or to be answered as a probe;
# absent for all that may be predicted.
AHEAD = "jitney.ahead"

# A function to call when the request's rows wait for a batch, or when none will: until then it counts as one that is on
# the way to the batcher. Calling it again does no harm, and the end of the request does the same.
HAS_QUEUED = "jitney.has_queued"
