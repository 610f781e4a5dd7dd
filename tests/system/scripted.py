"""An app whose model does what the rows say, for servers under test: `gunicorn -c gunicorn.conf.py scripted:app`.

Each row is [action, value]; the model answers with the value. Actions: 0 echo; 1 raise; 2 raise SystemExit;
3 sleep for `value` milliseconds, once per batch. `LOAD_S` makes the load take that long, and
`HOLD_S` then lets nothing else run for as many seconds; a file that holds `die` ends it with SystemExit.
"""

from __future__ import annotations

import ctypes
import os
import time

from loaders import ModelHandle, register_loader
from service import create_app


def run(rows):
    actions = {row[0] for row in rows}
    if 1 in actions:
        raise ValueError("a row asked for it")
    if 2 in actions:
        raise SystemExit("a row asked for it")
    time.sleep(max((row[1] / 1000 for row in rows if row[0] == 3), default=0.0))
    return [row[1] for row in rows]


class ScriptedLoader:
    """Loads any file, slowly if told so."""

    fmt = "scripted"

    def load(self, path, *, name, version, metadata=None):
        time.sleep(float(os.environ.get("LOAD_S", "0")))
        ctypes.PyDLL(None).sleep(int(os.environ.get("HOLD_S", "0")))  # a call that keeps the interpreter's lock
        if path.read_bytes() == b"die":
            raise SystemExit("the file asked for it")
        return ModelHandle.from_callable(run, name="scripted", version=version)


register_loader("scripted", ScriptedLoader())
app = create_app()
