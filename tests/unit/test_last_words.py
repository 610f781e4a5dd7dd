from __future__ import annotations

import pytest

from service.last_words import last_words

INTERPRETER = """The following operation failed in the TorchScript interpreter.
Traceback of TorchScript, serialized code (most recent call last):
  File "code/__torch__/net.py", line 10, in forward
    input = torch.linear(x, weight, bias)
            ~~~~~~~~~~~~ <--- HERE
RuntimeError: shapes cannot be multiplied (1x5 and 4x8)

"""


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no"), "ValueError: no"),
        (ValueError(), "ValueError"),
        (RuntimeError(INTERPRETER), "RuntimeError: shapes cannot be multiplied (1x5 and 4x8)"),
        (
            RuntimeError("CUDA error: out of memory\nCompile with TORCH_USE_CUDA_DSA"),
            "RuntimeError: CUDA error: out of memory",
        ),
        (Unspeakable(), "Unspeakable: (an error whose text cannot be shown)"),
    ],
)
def test_the_line_that_matters_is_told(error, said):
    assert last_words(error) == said


def test_a_long_line_is_cut():
    assert len(last_words(ValueError("x" * 9000))) < 400
