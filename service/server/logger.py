"""gunicorn's logger, without a log of its own for requests unless somebody asks for one."""

from __future__ import annotations

from gunicorn.glogging import Logger


class QuietLogger(Logger):  # type: ignore[misc]
    """Leaves requests to `service.logs`.

    gunicorn takes every configuration of the log for a wish to have its access log too: it would collect each header
    and variable of each request, for a logger that nobody reads.
    """

    @property
    def access_log_enabled(self) -> bool:
        """Whether gunicorn's own access log was asked for, with --access-logfile or --log-syslog."""
        return bool(self.cfg.accesslog or (self.cfg.syslog and not self.cfg.disable_redirect_access_to_syslog))
