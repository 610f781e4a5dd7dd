"""The digits demo: an 8 by 8 picture of a handwritten digit, as 64 numbers from 0 to 16, to the digit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from service.demo.bundles import write_bundle
from service.demo.sources import DemoError, Sources
from service.demo.steps import Say

SEED = 7
HELD_OUT = 0.25
# A build that learns less than this is broken; logistic regression reaches about .97.
LEAST_ACCURACY = 0.95


def build(directory: Path, sources: Sources, say: Say) -> None:  # noqa: ARG001 - the data ships with scikit-learn
    """Train on scikit-learn's own digits and write the bundle; deterministic."""
    import joblib
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    say("training on 1,347 handwritten digits")
    train_x, test_x, train_y, test_y = held_out_split()
    model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000, C=0.1))
    model.fit(train_x, train_y)
    accuracy = float(model.score(test_x, test_y))
    say(f"held-out accuracy {accuracy:.3f}")
    if accuracy < LEAST_ACCURACY:
        raise DemoError(f"digits reached only {accuracy:.3f} on held-out rows, {LEAST_ACCURACY} is expected")
    joblib.dump(model, directory / "model.joblib")
    write_bundle(
        directory,
        name="digits",
        fmt="joblib",
        file="model.joblib",
        input={"kind": "tabular"},
        notes=["Handwritten digits: 64 numbers from 0 to 16 (8 by 8 pixels, row by row); the answer is the digit."],
    )


def held_out_split() -> tuple[Any, Any, Any, Any]:
    """Rows to train on, rows held out, and the digits of each: (n, 64) float64 and (n,) int64."""
    from sklearn.datasets import load_digits
    from sklearn.model_selection import train_test_split

    rows, digits = load_digits(return_X_y=True)
    split: list[Any] = train_test_split(rows, digits, test_size=HELD_OUT, random_state=SEED, stratify=digits)
    train_x, test_x, train_y, test_y = split
    return train_x, test_x, train_y, test_y
