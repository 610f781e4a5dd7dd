"""Bodies made up for a server, from the description of its model at `/openapi.json`."""

from __future__ import annotations

import base64
import io
import random
from collections.abc import Callable
from functools import partial
from typing import Any

from service.bench.bodies import Body, json_body
from service.bench.errors import CannotMakeUp
from service.bench.mix import Mix

# Two in three short and one long, as search queries stand beside product reviews.
WORDS = Mix(((5, 15), (5, 15), (60, 120)))
# Sides of pictures, as they come from a web page.
_SIDES_PX = Mix(((256, 640),))

# Numbers are drawn up to here: far enough apart for most models to answer differently.
_LARGEST = 10.0
# fmt: off
_WORDS = [
    "film", "hotel", "phone", "dinner", "concert", "book", "garden", "journey", "room", "price", "story", "staff",
    "wonderful", "awful", "great", "boring", "brilliant", "rude", "quiet", "noisy", "clean", "dirty", "lovely", "slow",
    "the", "a", "this", "that", "was", "is", "really", "quite", "not", "very", "and", "but", "with", "for", "they",
]
# fmt: on

Make = Callable[[random.Random], Any]


def made_bodies(description: dict[str, Any], *, count: int, rows: Mix, words: Mix, rng: random.Random) -> list[Body]:
    """`count` bodies that the model takes, each of `rows` rows; texts have `words` words.

    description: what `/openapi.json` answers. Raises CannotMakeUp.
    """
    schema = description.get("components", {}).get("schemas", {}).get("Instance", {})
    if schema.get("title") == "Picture":
        return [_pictures(rows.draw(rng), rng) for _ in range(count)]
    make = _maker(schema, _example(description), words)
    return [json_body({"instances": [make(rng) for _ in range(rows.draw(rng))]}) for _ in range(count)]


def text_of(words: int, rng: random.Random) -> str:
    """A text of that many words, which says nothing but is different each time."""
    return " ".join(rng.choices(_WORDS, k=words))


def picture(rng: random.Random, width_px: int, height_px: int) -> bytes:
    """A JPEG file that compresses about as well as a photo. Raises CannotMakeUp where Pillow is missing."""
    try:
        from PIL import Image
    except ImportError:
        raise CannotMakeUp("pictures are made with Pillow: pip install 'jitney[images]', or give --bodies") from None
    blotches = Image.frombytes("RGB", (24, 24), rng.randbytes(24 * 24 * 3))
    file = io.BytesIO()
    blotches.resize((width_px, height_px), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
    return file.getvalue()


def _pictures(rows: int, rng: random.Random) -> Body:
    """One picture is sent as it is, several as base64."""
    files = [picture(rng, _SIDES_PX.draw(rng), _SIDES_PX.draw(rng)) for _ in range(rows)]
    if rows == 1:
        return Body(files[0], 1, "image/jpeg")
    return json_body({"instances": [{"b64": base64.b64encode(file).decode()} for file in files]})


def _example(description: dict[str, Any]) -> Any:
    """An instance that the server says it takes, None where it shows none."""
    body = description.get("paths", {}).get("/predict", {}).get("post", {}).get("requestBody", {})
    examples = body.get("content", {}).get("application/json", {}).get("examples", {})
    instances = examples.get("instances", {}).get("value", {}).get("instances", [])
    return instances[0] if instances else None


def _maker(schema: dict[str, Any], example: Any, words: Mix) -> Make:
    if schema.get("title") == "Text":
        return lambda rng: text_of(words.draw(rng), rng)
    if isinstance(example, dict):
        # A text in a column may have to be one that the model has learned.
        return lambda rng: {name: _near(value, rng) for name, value in example.items()}
    if schema.get("type") in ("array", "number", "integer", "boolean"):
        return partial(_value, schema)
    raise CannotMakeUp("the server does not say what its model takes: give --bodies, a file of request bodies")


def _near(value: Any, rng: random.Random) -> Any:
    return round(value * rng.uniform(0.5, 1.5), 4) if isinstance(value, float) else value


def _value(schema: dict[str, Any], rng: random.Random) -> Any:
    kind = schema.get("type")
    kind = kind[0] if isinstance(kind, list) else kind
    if kind == "array":
        if "prefixItems" in schema:
            return [_value(part, rng) for part in schema["prefixItems"]]
        return [_value(schema["items"], rng) for _ in range(schema.get("maxItems", schema.get("minItems", 1)))]
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "integer":
        return rng.randint(0, 1)  # any vocabulary has these
    if kind == "number":
        return round(rng.uniform(0, _LARGEST), 3)
    raise CannotMakeUp("a column holds texts that cannot be made up: give --bodies, a file of request bodies")
