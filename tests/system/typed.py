"""Models that answer with what they were given, one for each datatype: `gunicorn -c gunicorn.conf.py typed:app`.

TYPE is the NumPy type of the only model's input, which has two elements a row.
"""

from __future__ import annotations

import os

from loaders import ModelHandle
from loaders.signature import TensorInput
from service import create_app


def echo(rows):
    return list(rows)


spec = TensorInput(shape=(2,), dtype=os.environ["TYPE"])
app = create_app(model_handle=ModelHandle.from_callable(echo, name="echo", input=spec))
