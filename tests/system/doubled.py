"""The scripted app, and a second one in the same process that counts under the same names."""

from __future__ import annotations

from scripted import app

from service import create_app

second = create_app()

__all__ = ["app", "second"]
