"""Gunicorn reads this file; what it holds lives in the package, so that an installed `jitney serve` has it too."""

from service.gunicorn_config import *  # noqa: F403
