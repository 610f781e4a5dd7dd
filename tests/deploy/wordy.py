"""An app whose model counts words, taking `ROW_S` seconds for each text; one that says `fail` makes it raise.

It does nothing while the file that `GATE` names is there.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from loaders import ModelHandle
from loaders.signature import EncodedText, TextInput
from service import create_app

ROW_S = float(os.environ["ROW_S"])
GATE = Path(os.environ["GATE"])


def encode(text):
    return EncodedText(tuple(0 if word == "fail" else 1 for word in text.split()))


def count_words(rows):
    while GATE.exists():
        time.sleep(0.01)
    time.sleep(ROW_S * len(rows))
    if any(0 in row.ids for row in rows):
        raise ValueError("a text asked for it")
    return [float(len(row.ids)) for row in rows]


app = create_app(model_handle=ModelHandle.from_callable(count_words, name="wordy", input=TextInput(encode=encode)))
