"""What the HTTP server tells the app of a request, beside what WSGI names; imports nothing, as both sides need it."""

from __future__ import annotations

# Whether the request was handed to a thread before the server was told to stop; absent under other servers.
ACCEPTED = "jitney.accepted"

# When the request came, `time.monotonic()`: its deadline runs from then, and not from when a thread took it.
ARRIVED_AT = "jitney.arrived_at"

# How many rows and requests wait, for a request that has a thread only to be refused, or to be answered as a probe;
# absent for all that may be predicted.
AHEAD = "jitney.ahead"

# What is called once the batcher knows of the request, so that the server need not count it as on its way any longer.
# The server calls it itself where the app has not, when it is done with the request: again must be harmless.
ANNOUNCED = "jitney.announced"
