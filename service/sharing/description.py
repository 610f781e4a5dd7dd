"""What a front end has to know of a model: all but how it predicts."""

from __future__ import annotations

import dataclasses
from typing import Any

from loaders.errors import ModelError
from loaders.formats.text import Encoder, encoder_from
from loaders.handle import ModelHandle
from loaders.signature import ImageInput, InputSpec, OutputSpec, TabularInput, TensorInput, TextInput
from service.models.copies import Elsewhere, copies_of
from service.sharing.frames import Buffer, FrameError
from service.sharing.values import pack, unpack

_INPUTS: dict[str, type[InputSpec]] = {
    spec.kind.value: spec for spec in (TabularInput, TextInput, ImageInput, TensorInput)
}
_TOKENIZER = "tokenizer"


class IndescribableModel(ModelError):
    """A model whose rows can be prepared in its own process only."""


def described(model: ModelHandle, sample: Any | None, *, with_input: bool = True) -> tuple[Any, list[Buffer]]:
    """A model in JSON types, with the parts of the body that belong to it.

    sample: its prediction for a made-up row. with_input: False where the front ends have the input's description,
    because the app gave the model. Raises IndescribableModel.
    """
    told = {
        "name": model.name,
        "version": model.version,
        "format": model.fmt,
        "device": model.device,
        "input": _input(model.input) if with_input else None,
        "output": _fields(model.output),
        "metadata": model.metadata,
        "parameters": sorted(model.parameters),
        "copies": copies_of(model),
        "warnings": model.warnings,
        "sample": sample,
    }
    # Metadata is for information: what has no form here is told by its name.
    return pack([told], convert=str)


def restored(told: Any, body: memoryview, given: ModelHandle | None = None) -> tuple[ModelHandle, Any | None]:
    """The model and the sample that `described` was given; it can do anything but predict.

    given: the app's own handle, whose input stands where none is described. Raises FrameError.
    """
    values = unpack(told, body)
    try:
        (facts,) = values
        kind = facts["input"]
        spec = (TabularInput() if given is None else given.input) if kind is None else _restored_input(*kind)
        model = ModelHandle(
            name=facts["name"],
            version=facts["version"],
            fmt=facts["format"],
            predict=Elsewhere(int(facts["copies"])),
            input=spec,
            output=OutputSpec(**facts["output"]),
            device=facts["device"],
            metadata=facts["metadata"],
            parameters=frozenset(facts["parameters"]),
            warnings=facts["warnings"],
        )
        return model, facts["sample"]
    except (ValueError, TypeError, LookupError) as error:
        raise FrameError("a model is not described as it should be") from error


def _fields(spec: Any) -> dict[str, Any]:
    return {field.name: getattr(spec, field.name) for field in dataclasses.fields(spec)}


def _input(spec: InputSpec) -> tuple[str, dict[str, Any]]:
    fields = _fields(spec)
    if isinstance(spec, TextInput) and spec.encode is not None:
        if not isinstance(spec.encode, Encoder):
            raise IndescribableModel(
                "this model's texts are tokenised by code of its own, which front ends do not have: "
                "MODEL_SHARING=copy serves it, or an app that gives the model"
            )
        fields["encode"] = (_TOKENIZER, spec.encode.written(), spec.encode.max_length)
    return spec.kind.value, fields


def _restored_input(kind: str, fields: dict[str, Any]) -> InputSpec:
    encode = fields.get("encode")
    if encode is not None:
        what, written, max_length = encode
        if what != _TOKENIZER:
            raise ValueError("no tokenizer")
        fields = fields | {"encode": encoder_from(written, max_length)}
    return _INPUTS[kind](**fields)
