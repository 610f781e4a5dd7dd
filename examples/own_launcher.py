"""A program of a team's own that runs gunicorn, as it did before, now with what Jitney needs.

BIND=127.0.0.1:8000 python examples/own_launcher.py
"""

from __future__ import annotations

from typing import Any

from gunicorn.app.base import BaseApplication

from service import gunicorn_config


def worker_is_up(worker: Any) -> None:
    worker.log.info("our own hook: worker %d is up", worker.pid)


class Launcher(BaseApplication):
    """gunicorn with Jitney's configuration, and the team's own options after it."""

    def load_config(self) -> None:
        for name, value in vars(gunicorn_config).items():
            if name in self.cfg.settings:
                self.cfg.set(name, value)
        self.cfg.set("proc_name", "our-shop")
        self.cfg.set("post_worker_init", self.after_fork)

    def after_fork(self, worker: Any) -> None:
        # Jitney starts the model here: a hook of one's own calls its hook and does not replace it.
        gunicorn_config.post_worker_init(worker)
        worker_is_up(worker)

    def load(self) -> Any:
        # Imported in the worker process, as everything that loads numeric libraries has to be.
        from existing_flask_app import app

        return app


if __name__ == "__main__":
    Launcher().run()
