"""An app whose model does what the rows say: `gunicorn -c gunicorn.conf.py benchmark.endurance.faulty_model:app`.

The bundles of MODEL_REPOSITORY have the format `faulty`. Each answer tells in `X-Process` which process gave it.
"""

from __future__ import annotations

import os
import time

from benchmark.endurance.rows import Action, expected
from loaders import ModelHandle, register_loader
from service import create_app

HANG_S = 3600.0


class FaultyLoader:
    """Loads any file; the version decides by what the values are multiplied."""

    fmt = "faulty"

    def load(self, _path, *, name, version, metadata=None):  # noqa: ARG002
        def run(rows):
            actions = {row[0] for row in rows}
            if Action.DIE in actions:
                raise SystemExit("a row asked for it")
            if Action.RAISE in actions:
                raise ValueError("a row asked for it")
            if Action.HANG in actions:
                time.sleep(HANG_S)
            time.sleep(max((row[1] / 1000 for row in rows if row[0] == Action.SLEEP), default=0.0))
            answers = [expected(row[1], version) for row in rows]
            return answers[1:] if Action.SHORT in actions else answers

        return ModelHandle.from_callable(run, name=name, version=version)


register_loader("faulty", FaultyLoader())
app = create_app()


@app.after_request
def name_the_process(response):
    response.headers["X-Process"] = str(os.getpid())
    return response
