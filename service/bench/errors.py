"""Why a load could not be put on a server, in words for whoever asked for it."""

from __future__ import annotations


class BenchError(Exception):
    """Base of the others."""


class BenchUnavailable(BenchError):
    """The packages that the load needs are not installed."""


class BadAddress(BenchError):
    """What was given is no address of a server."""


class TooFewFiles(BenchError):
    """This process may not open as many connections as were asked for."""


class CannotMakeUp(BenchError):
    """The server's description of itself does not say enough to make up bodies."""


class NoReference(BenchError):
    """The server does not answer a body even when it is asked alone."""
