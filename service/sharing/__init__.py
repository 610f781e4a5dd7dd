"""One model for several worker processes: one process owns it, the others are front ends (`MODEL_SHARING=one`).

A front end has the HTTP side, validation and preparation; its `RemoteBatcher` stands where a `ThreadedBatcher` would,
and sends prepared rows to the owner over a local stream socket. The owner admits them to the only queue there is, and
answers in groups. gunicorn's master starts the owner before the front ends, replaces it when it ends, and ends it last.
"""
